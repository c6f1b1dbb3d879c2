"""One folder per toolset, one file per tool. The registry finds every module here that defines `TOOL`."""
