"""What is a picture: by its file's name, or by its first bytes."""

from stoker.data.index import JPEG, OTHER

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})
# How many bytes codec() wants to see.
HEAD = 12
OTHERS = (b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*", b"P5", b"P6")


def codec(head: bytes) -> int | None:
    """The codec of a picture that begins with these bytes; None where they begin no picture."""
    if head.startswith(b"\xff\xd8\xff"):
        return JPEG
    webp = head.startswith(b"RIFF") and head[8:12] == b"WEBP"
    return OTHER if webp or head.startswith(OTHERS) else None
