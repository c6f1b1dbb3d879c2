"""Truncates text at byte limits without splitting a character."""


def head_bytes(text: str, limit: int) -> str:
    """Return the longest start of `text` of at most `limit` UTF-8 bytes."""
    if len(text) * 4 <= limit:
        return text
    encoded = text.encode(errors="surrogatepass")
    return text if len(encoded) <= limit else encoded[:limit].decode(errors="ignore")


def tail_bytes(text: str, limit: int) -> str:
    """Return the longest end of `text` of at most `limit` UTF-8 bytes."""
    encoded = text.encode(errors="surrogatepass")
    return text if len(encoded) <= limit else encoded[len(encoded) - limit :].decode(errors="ignore")
