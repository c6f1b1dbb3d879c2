"""What view_image shows, and what it refuses."""

import struct
import zlib
from pathlib import Path

import pytest

from mcp_toolserver.tools.files.view_image import TOOL
from tests.support.calling import Bench, make


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    rows = (b"\0" + bytes((width + 7) // 8)) * height
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes(3)
    return b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + b"\xff\xff\x01" + frame + b"\xff\xd9"


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4) + body


PICTURES = {
    "png": (png(3, 2), "image/png", (3, 2)),
    "largest": (png(8_000, 1), "image/png", (8_000, 1)),
    "jpeg": (jpeg(640, 480), "image/jpeg", (640, 480)),
    "old-gif": (b"GIF87a" + struct.pack("<HH", 7, 9) + bytes(10), "image/gif", (7, 9)),
    "gif": (b"GIF89a" + struct.pack("<HH", 7, 9) + bytes(10), "image/gif", (7, 9)),
    "webp-lossy": (
        webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 0x4000 | 33, 44)),
        "image/webp",
        (33, 44),
    ),
    "webp-lossless": (webp(b"VP8L", b"\x2f" + struct.pack("<I", 54 | 65 << 14)), "image/webp", (55, 66)),
    "webp-extended": (
        webp(b"VP8X", bytes(4) + (76).to_bytes(3, "little") + (87).to_bytes(3, "little")),
        "image/webp",
        (77, 88),
    ),
}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tool=TOOL, root=make(tmp_path / "root", {"ok.png": png(1, 1)}))


async def test_a_picture_is_shown_as_it_is_with_its_size(bench: Bench) -> None:
    for data, mime_type, (width, height) in PICTURES.values():
        (bench.root / "picture").write_bytes(data)
        result = await bench.result(path="picture")
        assert result.text == f"picture: {mime_type}, {width} x {height} pixels, {len(data)} bytes"
        [image] = result.images
        assert (image.data, image.mime_type) == (data, mime_type)


REFUSED = {
    "BMP": (b"BM" + bytes(20),),
    "PDF": (b"%PDF-1.7\n",),
    "AVIF": (b"\0\0\0\x20ftypavif",),
    "no PNG": (b"text\n", b""),
    "damaged": (
        *(png(3, 2)[:18], png(0, 2), jpeg(1, 1)[:22], b"\xff\xd8\xff\xe0\0\x02junk"),
        *(webp(b"VP9 ", bytes(20)), b"\xff\xd8\xff\xd9\0\0\0"),
    ),
    "8001 x 1": (png(8_001, 1),),
    "1 x 8001": (png(1, 8_001),),
    "bytes": (png(1, 1) + bytes(5 << 20),),
}


async def test_what_no_model_takes_is_refused_with_the_reason(bench: Bench) -> None:
    for what, pictures in REFUSED.items():
        for data in pictures:
            (bench.root / "picture").write_bytes(data)
            assert what in await bench.refusal("invalid_input", path="picture")
