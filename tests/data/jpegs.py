"""JPEGs of every sort to test decoders with: most by Pillow, what Pillow can't write block by block."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

ZIGZAG = sorted(range(64), key=lambda k: (k // 8 + k % 8, (k // 8, k % 8)[(k // 8 + k % 8) % 2 == 0]))


def photo(width: int, height: int, *, seed: int = 0, mode: str = "RGB") -> Image.Image:
    """A texture with the spectrum of a photo: smooth noise at several scales, and an edge or two."""
    numbers = np.random.default_rng(seed)
    channels = len(Image.new(mode, (1, 1)).getbands())
    total = np.zeros((height, width, channels))
    for scale in (1, 2, 4, 8, 16, 32, 64):
        small = numbers.normal(0, 1, (height // scale + 2, width // scale + 2, channels))
        small = 0.7 * small.mean(2, keepdims=True) * channels**0.5 + 0.3 * small
        for channel in range(channels):
            layer = Image.fromarray(small[:, :, channel].astype(np.float32))
            wide = layer.resize((width, height), Image.Resampling.BICUBIC)
            total[:, :, channel] += np.asarray(wide) * scale**0.8
    total *= 40 / max(total.std(), 1e-9)
    y, x = np.mgrid[:height, :width]
    total += 40.0 * ((x * 3 + y * 2) > (width + height))[:, :, None]
    values = np.clip(total + 110, 0, 255).astype(np.uint8)
    return Image.fromarray(values[:, :, 0] if channels == 1 else values, mode=None if channels != 4 else "CMYK")


def encoded(picture: Image.Image, **options: object) -> bytes:
    """A picture as JPEG, by Pillow."""
    file = io.BytesIO()
    picture.save(file, "JPEG", **options)
    return file.getvalue()


def frame_at(raw: bytes) -> int:
    """Where a baseline or progressive picture's frame header begins."""
    return min(at for code in (b"\xff\xc0", b"\xff\xc2") if (at := raw.find(code)) >= 0)


def patched(raw: bytes, at: int, value: int) -> bytes:
    """The same bytes with another one at a place."""
    return raw[:at] + bytes([value]) + raw[at + 1 :]


def as_ycck(raw: bytes) -> bytes:
    """A CMYK picture that says that it is YCCK."""
    return patched(raw, raw.index(b"Adobe") + 11, 2)


def tables(raw: bytes) -> dict[int, dict[int, tuple[int, int]]]:
    """The Huffman tables of a picture, by class and number: symbol -> (code, length)."""
    found: dict[int, dict[int, tuple[int, int]]] = {}
    at = 0
    while (at := raw.find(b"\xff\xc4", at)) >= 0:
        end = at + 2 + int.from_bytes(raw[at + 2 : at + 4])
        at += 4
        while at < end:
            name, bits = raw[at], raw[at + 1 : at + 17]
            symbols = iter(raw[at + 17 : at + 17 + sum(bits)])
            code, codes = 0, {}
            for length, count in enumerate(bits, start=1):
                for _ in range(count):
                    codes[next(symbols)] = (code, length)
                    code += 1
                code *= 2
            found[name] = codes
            at += 17 + sum(bits)
    return found


def bits_of(value: int) -> str:
    """A coefficient's bits behind its code."""
    size = abs(value).bit_length()
    return f"{value if value >= 0 else value + (1 << size) - 1:0{size}b}" if size else ""


def block_bits(block: Sequence[int], step: int, dc: dict[int, tuple[int, int]], ac: dict[int, tuple[int, int]]) -> str:
    """One block, entropy coded: its first coefficient is a step from the one before."""

    def code(table: dict[int, tuple[int, int]], symbol: int) -> str:
        return f"{table[symbol][0]:0{table[symbol][1]}b}"

    text = code(dc, abs(step).bit_length()) + bits_of(step)
    run = 0
    last = max((k for k in range(1, 64) if block[k]), default=0)
    for value in block[1 : last + 1]:
        if value == 0:
            run += 1
            continue
        text += code(ac, 0xF0) * (run // 16) + code(ac, run % 16 * 16 + abs(value).bit_length()) + bits_of(value)
        run = 0
    return text if last == 63 else text + code(ac, 0)


def stuffed(text: str) -> bytes:
    """Bits as the bytes of a scan."""
    text += "1" * (-len(text) % 8)
    raw = bytes(int(text[k : k + 8], 2) for k in range(0, len(text), 8))
    return raw.replace(b"\xff", b"\xff\x00")


def by_hand(width: int, height: int, sampling: Sequence[tuple[int, int]], *, restart: int = 0, seed: int = 0) -> bytes:
    """A baseline JPEG of random blocks whose parts have these sampling factors (across, down)."""
    numbers = np.random.default_rng(seed)
    model = encoded(Image.new("RGB", (8, 8)), quality=90)
    codes = tables(model)
    across, down = max(h for h, _ in sampling), max(v for _, v in sampling)
    alone = len(sampling) == 1
    columns, rows = (
        (-(-width // 8), -(-height // 8)) if alone else (-(-width // (8 * across)), -(-height // (8 * down)))
    )
    levels, scan, text = [0] * len(sampling), b"", ""
    for mcu in range(columns * rows):
        if restart and mcu and mcu % restart == 0:
            scan += stuffed(text) + bytes([0xFF, 0xD0 + (mcu // restart - 1) % 8])
            levels, text = [0] * len(sampling), ""
        for part, (h, v) in enumerate(sampling):
            for _ in range(1 if alone else h * v):
                block = np.zeros(64, int)
                near = numbers.integers(1, 64, numbers.integers(0, 12))
                block[near] = numbers.integers(-12, 13, len(near)) * 12 // (near + 6)
                wanted = int(numbers.integers(-120, 120))
                kind = 16 * (part > 0)
                text += block_bits(block.tolist(), wanted - levels[part], codes[kind // 16], codes[0x10 + kind // 16])
                levels[part] = wanted
    scan += stuffed(text)
    begin, end = frame_at(model), model.index(b"\xff\xc4")
    parts = b"".join(bytes([k + 1, h * 16 + v, min(k, 1)]) for k, (h, v) in enumerate(sampling))
    frame = bytes([8, *height.to_bytes(2), *width.to_bytes(2), len(sampling)]) + parts
    uses = b"".join(bytes([k + 1, 0x11 * min(k, 1)]) for k in range(len(sampling)))
    start = bytes([len(sampling)]) + uses + bytes([0, 63, 0])
    interval = b"\xff\xdd\x00\x04" + restart.to_bytes(2) if restart else b""
    head = model[:begin] + b"\xff\xc0" + (len(frame) + 2).to_bytes(2) + frame + model[end : model.index(b"\xff\xda")]
    return head + interval + b"\xff\xda" + (len(start) + 2).to_bytes(2) + start + scan + b"\xff\xd9"


def every_sort(width: int, height: int, *, seed: int = 0) -> dict[str, bytes]:
    """A picture of this size in every sort of JPEG that the native decoder takes."""
    colours, grey = photo(width, height, seed=seed), photo(width, height, seed=seed, mode="L")
    cmyk = photo(width, height, seed=seed, mode="CMYK")
    plain = encoded(grey, quality=90)
    return {
        "4:4:4": encoded(colours, subsampling=0, quality=92),
        "4:2:2": encoded(colours, subsampling=1, quality=85),
        "4:2:0": encoded(colours, subsampling=2, quality=75),
        "4:4:0": by_hand(width, height, [(1, 2), (1, 1), (1, 1)], seed=seed),
        "4:1:1": by_hand(width, height, [(4, 1), (1, 1), (1, 1)], seed=seed),
        "4:1:0": by_hand(width, height, [(4, 2), (1, 1), (1, 1)], restart=3, seed=seed),
        "uneven": by_hand(width, height, [(2, 2), (2, 1), (1, 2)], seed=seed),
        "grey": plain,
        "grey, sampled 2 x 2": patched(plain, frame_at(plain) + 11, 0x22),
        "grey, sampled 1 x 2": patched(plain, frame_at(plain) + 11, 0x12),
        "CMYK": encoded(cmyk, quality=90),
        "YCCK": as_ycck(encoded(cmyk, quality=90)),
        "RGB": encoded(colours, keep_rgb=True, quality=90),
        "progressive": encoded(colours, progressive=True, quality=80),
        "progressive grey": encoded(grey, progressive=True, quality=80),
        "progressive CMYK": encoded(cmyk, progressive=True, quality=80, restart_marker_blocks=5),
        "optimised": encoded(colours, optimize=True, quality=70),
        "restarts by row": encoded(colours, restart_marker_rows=1, quality=85),
        "restarts by block": encoded(colours, restart_marker_blocks=1, quality=85, subsampling=0),
        "restarts now and then": encoded(colours, restart_marker_blocks=7, quality=85, subsampling=2),
        "quality 1": encoded(colours, quality=1),
        "quality 100": encoded(colours, quality=100, subsampling=0),
    }
