"""The parts of a photo of a pressure gauge: wall, case, face, needle, glass, camera.

Lengths are in dial units: the rim has radius 1 and its centre is (0, 0), y points down, angles run clockwise from the
top. A `Shot` is one gauge and the camera before it; all things, the wall behind the dial too, are drawn through it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

from stoker.data.random import DIALS, words

Colour = tuple[int, int, int]
Dice = Iterator[float]
Points = NDArray[np.float64]
Shapes = list[tuple[Points, tuple[int, ...]]]
Ink = ImageDraw.ImageDraw
T = TypeVar("T")

TENTHS = 10
SWEEP = math.radians(270)
SUPERSAMPLING = 2
GRAIN = 1 << 20
STEPS = (0.1, 0.2, 0.5, 1, 2, 2.5, 5, 10, 20, 25, 50, 100)
NAMES = ("WEXA", "Nordal", "PRESTO", "Hykon", "cl. 1.6", "EN 837", "OIL", "AIR", "")
UNITS = ("bar", "psi", "kPa", "MPa", "mbar", "atm")
METALS = ((196, 198, 200), (150, 152, 156), (190, 152, 84), (168, 120, 72), (46, 46, 50), (28, 30, 34))
PAINTS = ((44, 142, 66), (226, 184, 32), (202, 40, 34), (36, 66, 120), (24, 24, 26), (206, 206, 204))
WALLS = ((178, 170, 158), (96, 98, 99), (206, 204, 198), (92, 104, 96), (142, 96, 76), (74, 88, 108), (98, 90, 78))
FACES = ((238, 238, 238), (228, 222, 200), (214, 224, 228), (240, 232, 190), (30, 31, 34), (44, 52, 60))
NEEDLES = ((18, 18, 20), (18, 18, 20), (176, 24, 22), (20, 34, 92), (206, 62, 14))
NEEDLES_ON_BLACK = ((236, 236, 232), (236, 96, 26), (232, 202, 40))
SKINS = ((222, 172, 144), (176, 122, 92), (112, 74, 54), (236, 194, 170))
# One side of a needle, from its tip: (share of the length before the hub, of the length behind it, of the width).
TAPER, BLUNT = ((1, 0, 0), (0, 0, 1), (0, 1, 0.8)), ((1, 0, 0.35), (0, 1, 1.3))
SWORD, ARROW = ((1, 0, 0), (0.85, 0, 0.8), (0, 1, 0.8)), ((1, 0, 0), (0.7, 0, 1.6), (0, 0, 0.5), (0, 1, 0.1))
# Pillow's own typeface, so that the pictures do not depend on the fonts of a machine.
font = lru_cache(maxsize=64)(ImageFont.load_default)


@dataclass(frozen=True)
class Shot:
    """A gauge's colours and needle, the side the light comes from, and how its plane falls on `side` pixels."""

    rim: Colour
    face: Colour
    print: Colour
    needle: Colour
    angle: float
    light: float
    side: int
    radius: float
    plane: Points
    middle: Points


def between(dice: Dice, low: float, high: float) -> float:
    """The next roll, spread over low..high."""
    return low + (high - low) * next(dice)


def pick(dice: Dice, things: Sequence[T]) -> T:
    """One of the things, each as likely as the others."""
    return things[int(next(dice) * len(things))]


def shade(colour: Colour, gain: float) -> Colour:
    """The colour under more (gain > 1) or less light."""
    return min(255, int(colour[0] * gain)), min(255, int(colour[1] * gain)), min(255, int(colour[2] * gain))


def polar(radius: ArrayLike, angle: ArrayLike) -> Points:
    """Points of the dial's plane, one in a row."""
    return np.column_stack([np.multiply(radius, np.sin(angle)), np.multiply(radius, -np.cos(angle))])


CIRCLE = polar(1.0, np.linspace(0, 2 * math.pi, 48, endpoint=False))
DOT = CIRCLE[::4]
SQUARE = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])


def seen(shot: Shot, points: Points) -> list[tuple[float, float]]:
    """The pixels at which the camera sees points of the dial's plane."""
    flat = points @ shot.plane + shot.middle
    # Rounded, so that the last bit of a sine, which differs between machines, does not move an edge.
    return list(map(tuple, (np.rint(flat[:, :2] * (shot.side * 64) / flat[:, 2:]) / 64).tolist()))


def paint(ink: Ink, shot: Shot, shapes: Shapes) -> None:
    """Fill the shapes, the first one first."""
    # All of them go through the camera at once: numpy takes as long for one shape as for ten.
    pixels = iter(seen(shot, np.concatenate([points for points, _ in shapes])))
    for points, fill in shapes:
        ink.polygon(list(islice(pixels, len(points))), fill=fill)


def scene(number: int, dice: Dice, side: int) -> Shot:
    """A gauge before a handheld camera: a little turned, a little aslant, not quite in the middle."""
    # The middle of a tenth, so that the turn of the camera does not carry the needle into the next one.
    angle = ((number % TENTHS + between(dice, 0.12, 0.88)) / TENTHS - 0.5) * SWEEP
    rim, face = pick(dice, METALS + PAINTS), pick(dice, FACES)
    pale = sum(face) > 380
    ink, needle = ((26, 26, 28), pick(dice, NEEDLES)) if pale else ((226, 226, 222), pick(dice, NEEDLES_ON_BLACK))
    radius, tilt = between(dice, 0.35, 0.46), between(dice, 0, 0.27)
    turn = between(dice, -0.035, 0.035) + between(dice, -0.035, 0.035)
    toward = polar(1.0, [between(dice, 0, 2 * math.pi)])
    squash = np.eye(2) - (1 - math.cos(tilt)) * toward.T @ toward
    spin = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    middle = [between(dice, radius - 0.01, 1.01 - radius) for _ in range(2)]
    far = 0.25 * math.sin(tilt) * toward.T
    plane = np.hstack([radius * spin @ squash + far * middle, far])
    light = between(dice, -1.2, 1.2)
    return Shot(rim, face, ink, needle, angle, light, side, radius * side, plane, np.array([*middle, 1.0]))


def pipe(x: float, y: float, wide: float, tall: float, colour: Colour, light: float) -> Shapes:
    """A round bar along its longer side: strips that are bright toward the light and dark at both edges."""
    shapes: Shapes = []
    for low in (0, 0.2, 0.4, 0.6, 0.8):
        strip = 1 - (1 - SQUARE) * ((1 - low, 1) if wide < tall else (1, 1 - low))
        gain = max(0.3, 1.25 - 4.5 * (low - 0.4 - 0.12 * light) ** 2)
        shapes.append((strip * (wide, tall) + (x, y), shade(colour, gain)))
    return shapes


def scenery(dice: Dice, wall: Colour, light: float) -> Shapes:
    """What is behind the dial: bricks, pipes or a cluttered workshop, and the shadow of the dial on it."""
    kind, size = pick(dice, ("plain", "bricks", "pipes", "clutter")), (between(dice, 1, 1.4), between(dice, 0.4, 0.55))
    shapes: Shapes = []
    for column, row in ((x, y) for x in range(-2, 2) for y in range(-4, 4) if kind == "bricks"):
        brick = (SQUARE * (0.95, 0.9) + (column + row % 2 / 2, row)) * size
        shapes.append((brick, shade(wall, between(dice, 0.6, 0.95))))
    for _ in range({"pipes": 3, "clutter": 12}.get(kind, 0)):
        x, y, wide = between(dice, -2.2, 2), between(dice, -2.2, 2), between(dice, 0.15, 0.65)
        colour, upright = shade(pick(dice, WALLS + METALS + PAINTS), between(dice, 0.4, 1)), next(dice) < 0.5
        if kind == "clutter":
            shapes.append(((CIRCLE if upright else SQUARE) * wide + (x, y), colour))
        else:
            shapes += pipe(x, -4, wide, 8, colour, light) if upright else pipe(-4, y, 8, wide, colour, light)
    return shapes + [(CIRCLE * spread + (-0.12 * light, 0.12), (0, 0, 0, 60)) for spread in (1.16, 1.08, 1.0)]


def background(shot: Shot, dice: Dice, grain: NDArray[np.uint8]) -> Image.Image:
    """The scenery behind the dial, stained and out of focus."""
    # Drawn small and blown up: that is the blur, and it is quick.
    small = replace(shot, side=max(8, round(shot.side * between(dice, 0.15, 0.4))))
    wall = shade(pick(dice, WALLS), between(dice, 0.6, 1.15))
    picture = Image.new("RGB", (small.side, small.side), wall)
    paint(ImageDraw.Draw(picture, "RGBA"), small, scenery(dice, wall, shot.light))
    cells = int(between(dice, 4, 40))
    stains = Image.fromarray(255 - grain[: cells * cells].reshape(cells, cells) // int(between(dice, 4, 12)))
    stains = stains.resize(picture.size, Image.Resampling.BICUBIC)
    picture = ImageChops.multiply(picture, Image.merge("RGB", (stains, stains, stains))).filter(ImageFilter.BoxBlur(1))
    side = shot.side // SUPERSAMPLING
    picture = picture.resize((side, side), Image.Resampling.BICUBIC)
    return picture.resize((shot.side, shot.side), Image.Resampling.NEAREST)


def case(shot: Shot, dice: Dice) -> Shapes:
    """The fitting under the dial, a flange with screws, the rim in metal or paint, and the blank face in its shadow."""
    brass, polish, phase = pick(dice, METALS[:4]), between(dice, 0.05, 0.35), between(dice, 0, 3)
    shapes: Shapes = []
    if next(dice) < 0.6:
        shapes += pipe(-0.17, 1.3, 0.34, 3, shade(brass, 0.8), shot.light)
        shapes += pipe(-0.13, 0.8, 0.26, 0.4, brass, shot.light)
        shapes += pipe(-0.24, 1.12, 0.48, 0.24, shade(brass, 0.95), shot.light)
    if next(dice) < 0.3:
        shapes += [(CIRCLE * 1.12, shade(shot.rim, 0.6)), (CIRCLE * 1.1, shade(shot.rim, 0.85))]
        for screw in polar(1.04, phase + np.array([0, 2.1, 4.2])):
            shapes += [(DOT * 0.045 + screw, shade(shot.rim, 0.35)), (DOT * 0.03 + screw - 0.01, shade(shot.rim, 1.2))]
    shapes.append((CIRCLE, shade(shot.rim, 0.8)))
    angles, lip = np.linspace(0, 2 * math.pi, 21), between(dice, 0.9, 0.96)
    for outer, inner, slope in ((1.0, lip, 0.3), (lip, 0.86, -0.3)):
        outside, inside = polar(outer, angles), polar(inner, angles)
        bevels = np.stack([outside[:-1], outside[1:], inside[1:], inside[:-1]], axis=1)
        gains = 0.95 + slope * np.cos(angles - shot.light) + polish * np.cos(2 * (angles - phase))
        shapes += [(bevel, shade(shot.rim, gain)) for bevel, gain in zip(bevels, gains.tolist(), strict=False)]
    for shift, gain in ((0, 0.6), (0.012, 0.8), (0.024, 1)):
        shapes.append((CIRCLE * (0.865 - 1.5 * shift) + (-shift * shot.light, shift), shade(shot.face, gain)))
    return shapes


def face(ink: Ink, shot: Shot, dice: Dice) -> None:
    """What is printed on the face: coloured zones, ticks, numbers and names."""
    outer, inner, zones = between(dice, 0.74, 0.8), between(dice, 0.6, 0.66), next(dice) < 0.55
    low, high = sorted(between(dice, 0.1, 1) for _ in range(2))
    for start, end, colour in zip((0, low, high), (low, high, 1), PAINTS, strict=False) if zones else ():
        arc = np.linspace(start - 0.5, end - 0.5, 12) * SWEEP
        paint(ink, shot, [(np.vstack([polar(outer, arc), polar(outer - 0.06, arc[::-1])]), colour)])
    majors, minors = pick(dice, (4, 5, 5, 6, 8)), pick(dice, (1, 2, 4, 5))
    angles = (np.arange(majors * minors + 1) / (majors * minors) - 0.5) * SWEEP
    thick = max(1, round(between(dice, 0.012, 0.03) * shot.radius))
    lengths = np.where(np.arange(len(angles)) % minors == 0, inner + 0.03, outer - 0.06)
    ends = zip(seen(shot, polar(outer, angles)), seen(shot, polar(lengths, angles)), strict=True)
    for number, tick in enumerate(ends):
        ink.line(tick, fill=shot.print, width=1 if number % minors else thick)
    step, tall = pick(dice, STEPS), between(dice, 0.13, 0.18) * (1 if majors < 8 else 0.8)
    numbers = [f"{step * major:g}" for major in range(majors + 1)] if next(dice) < 0.85 else []
    texts = [(pick(dice, UNITS), between(dice, 0.12, 0.17)), (pick(dice, NAMES), between(dice, 0.09, 0.14))]
    texts += [(text, tall) for text in numbers]
    spots = [(0, between(dice, 0.28, 0.4)), (0, -between(dice, 0.2, 0.32)), *polar(inner - 0.09, angles[::minors])]
    for (text, tall), spot in zip(texts, seen(shot, np.array(spots)), strict=False):
        ink.text(spot, text, fill=shot.print, font=font(size=max(5, round(tall * shot.radius))), anchor="mm")


def needle(shot: Shot, dice: Dice) -> Shapes:
    """The needle and its hub, with their shadow on the face."""
    tip, tail, wide = between(dice, 0.6, 0.78), between(dice, 0.08, 0.26), between(dice, 0.032, 0.055)
    side = np.array(pick(dice, (TAPER, BLUNT, SWORD, ARROW))) @ [[tip, 0], [-tail, 0], [0, wide]]
    outline = np.vstack([side, side[::-1] * (1, -1)]) @ polar(1.0, [shot.angle, shot.angle + math.pi / 2])
    hub, height, cap = between(dice, 0.07, 0.13), between(dice, 0.02, 0.06), pick(dice, (shot.needle, *METALS[:5]))
    fall = (-height * shot.light, height)
    shapes: Shapes = [(outline + fall, (0, 0, 0, 80)), (DOT * hub + fall, (0, 0, 0, 80)), (outline, shot.needle)]
    return shapes + [(DOT * hub * share, shade(cap, gain)) for share, gain in ((1, 0.7), (0.7, 0.95), (0.4, 1.2))]


def obstacle(film: Ink, shot: Shot, dice: Dice) -> None:
    """Tape, a cable or a finger in front of the dial, but never over the tip of the needle."""
    kind, away = pick(dice, ("tape", "cable", "finger")), shot.angle + math.pi + between(dice, -2.1, 2.1)
    out, side = polar(1.0, [away, away + math.pi / 2])
    near, wide, bend = between(dice, 0.35, 0.8), between(dice, 0.08, 0.2), between(dice, -0.3, 0.3)
    steps, colour = np.linspace(-3, 3, 13)[:, None], pick(dice, SKINS if kind == "finger" else PAINTS)
    path = out * (near + (kind == "cable") * bend * steps**2 / 3) + side * steps
    if kind == "finger":
        path, wide = out * np.linspace(near, 4, 13)[:, None] + side * bend * steps, wide + 0.14
    layers = ((1.0, 0.6, 0.0), (0.8, 0.85, 0.03), (0.5, 1.0, 0.06), (0.2, 1.12, 0.1))
    for scale, gain, shift in layers[: 1 if kind == "tape" else 4]:
        line, width = seen(shot, path + np.array([shot.light, -1]) * shift * wide), scale * wide * shot.radius
        film.line(line, fill=(*shade(colour, gain), 235), width=max(1, round(width)))
        film.circle(line[0], width / 2, fill=shade(colour, gain))


def glare(shot: Shot, dice: Dice) -> Image.Image:
    """What the glass mirrors: the bright edge of its dome, a window, a lamp."""
    small = replace(shot, side=max(8, shot.side // 5))
    mirror, glass = (Image.new("L", (small.side, small.side)) for _ in range(2))
    strength = int(between(dice, 10, 130))
    middle, spread, sag = shot.light + between(dice, -0.5, 0.5), between(dice, 0.3, 0.8), between(dice, 0.06, 0.35)
    spot = np.array([between(dice, -0.5, 0.3), between(dice, -0.5, 0.3)])
    arc, depth = np.linspace(middle - spread, middle + spread, 12), 0.8 - sag * np.sin(np.linspace(0, math.pi, 12))
    dome, pane = np.vstack([polar(0.82, arc), polar(depth, arc)[::-1]]), SQUARE * (0.4 * spread, 0.8 * spread) + spot
    shapes: Shapes = [(dome, (strength,))] if next(dice) < 0.5 else []
    if next(dice) < 0.3:
        shapes += [(pane, (strength // 2,)), (pane - (0.44 * spread, 0), (strength // 2,))]
    if next(dice) < 0.3:
        shapes.append((DOT * sag / 3 - spot, (min(255, strength * 2),)))
    if not shapes:
        return mirror
    paint(ImageDraw.Draw(mirror), small, shapes)
    paint(ImageDraw.Draw(glass), small, [(CIRCLE * 0.82, (255,))])
    return ImageChops.multiply(mirror.filter(ImageFilter.BoxBlur(1)), glass)


@lru_cache(maxsize=4)
def film_grain(seed: int) -> NDArray[np.uint8]:
    """A long run of random bytes; every picture starts to read it at another place."""
    key = words(seed, epoch=1, positions=np.array([0]), purpose=DIALS, count=4).astype("<u4").view("<u8")[0]
    return np.random.Philox(key=key).random_raw(GRAIN // 8).astype("<u8").view(np.uint8)


def exposure(picture: Image.Image, mirror: Image.Image, dice: Dice, grain: NDArray[np.uint8]) -> Image.Image:
    """The picture as a cheap sensor takes it: uneven light, dark corners, a colour cast, haze and noise."""
    slope, rise, corner, warm = (np.float32(between(dice, -most, most)) for most in (0.25, 0.25, 0.22, 0.09))
    x = np.linspace(-1, 1, picture.width, dtype=np.float32)
    dim = abs(corner) * x * x - np.float32(between(dice, 0.36, 0.55))
    light = np.add.outer(rise * x - dim, slope * x - dim)
    gain = np.stack([light * (1 + warm), light, light * (1 - warm)], axis=2)
    gleam = np.asarray(mirror.resize(picture.size, Image.Resampling.BICUBIC).convert("RGB"))
    noise = np.resize(grain[: gain.size], gain.shape) * np.float32(between(dice, 0.01, 0.06))
    pixels = np.asarray(picture) * gain + gleam + noise + np.float32(between(dice, -8, 12))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
