"""Pictures of the wares, drawn by code as inline SVG: a shape for the noun, a palette for the colour word.

Pure text in, text out. The drawings have no script and load nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .catalogue import Ware


class Palette(msgspec.Struct, frozen=True):
    body: str
    shade: str
    ground: str


PALETTES = {
    "Moss": Palette("#6b7f4a", "#4d5e33", "#e9eddd"),
    "Ochre": Palette("#c98f36", "#9c6a1e", "#f6ead2"),
    "Chalk": Palette("#f4f0e6", "#cfc7b4", "#dfe3e0"),
    "Indigo": Palette("#3f4f8c", "#2b3766", "#e0e4f1"),
    "Rust": Palette("#b4552f", "#86391b", "#f5e0d6"),
    "Sage": Palette("#9db39a", "#748b72", "#eaf0e8"),
    "Plum": Palette("#7a4063", "#592b47", "#f0e1ea"),
    "Slate": Palette("#66727c", "#48525a", "#e4e8eb"),
    "Saffron": Palette("#e2a72e", "#b5801a", "#fbf0d3"),
    "Fern": Palette("#3f7d58", "#2a5a3e", "#deeee4"),
}


def picture(ware: Ware) -> str:
    """A square drawing of the ware as an `<svg>` element; the page's style sheet gives it its size."""
    palette = PALETTES[ware.colour]
    draw = SHAPES.get(ware.noun, _vase)
    tilt = (-3, 0, 0, 2)[ware.seed % 4]
    return (
        f'<svg class="picture" viewBox="0 0 200 200" role="img" aria-label="{ware.noun}">'
        f'<rect width="200" height="200" fill="{palette.ground}"/>'
        f'<circle cx="146" cy="58" r="30" fill="#fff" opacity=".55"/>'
        f'<ellipse cx="100" cy="166" rx="58" ry="7" fill="#000" opacity=".09"/>'
        f'<g transform="rotate({tilt} 100 165)">{draw(palette)}</g></svg>'
    )


def stars(rating: float) -> str:
    """Five stars, filled from the left up to the rating."""
    star = "M10 1.6l2.6 5.3 5.8.8-4.2 4.1 1 5.8-5.2-2.7-5.2 2.7 1-5.8L1.6 7.7l5.8-.8z"
    width = f"{rating / 5 * 100:.0f}%"
    row = "".join(f'<path transform="translate({n * 20} 0)" d="{star}"/>' for n in range(5))
    return (
        '<svg class="stars" viewBox="0 0 100 20" aria-hidden="true">'
        f'<g fill="#d9d3c7">{row}</g><svg width="{width}" height="20" overflow="hidden">'
        f'<g fill="#d08a1d">{row}</g></svg></svg>'
    )


def _desk_lamp(p: Palette) -> str:
    return (
        f'<path d="M74 164h52v-7H74z" fill="{p.shade}"/><path d="M97 157V98l28-34" fill="none" stroke="{p.shade}" '
        f'stroke-width="5" stroke-linejoin="round"/><path d="M104 48l46 30-6 12-56-18z" fill="{p.body}"/>'
        '<ellipse cx="116" cy="86" rx="14" ry="6" fill="#ffe9a8" transform="rotate(20 116 86)"/>'
    )


def _pendant(p: Palette) -> str:
    return (
        f'<path d="M100 0v66" stroke="{p.shade}" stroke-width="3"/><path d="M92 62h16v10H92z" fill="{p.shade}"/>'
        f'<path d="M50 128c0-34 22-56 50-56s50 22 50 56z" fill="{p.body}"/>'
        '<ellipse cx="100" cy="128" rx="50" ry="8" fill="#ffe9a8"/>'
    )


def _lantern(p: Palette) -> str:
    return (
        f'<path d="M78 62c0-30 44-30 44 0" fill="none" stroke="{p.shade}" stroke-width="4"/>'
        f'<path d="M68 62h64v10H68zM64 156h72v9H64z" fill="{p.shade}"/>'
        '<path d="M72 72h56v84H72z" fill="#fff3cf"/><path d="M92 134h16v22H92z" fill="#fff"/>'
        '<path d="M100 104c10 14 8 28 0 30-8-2-10-16 0-30z" fill="#f0a63a"/>'
        f'<path d="M72 72v84M128 72v84" stroke="{p.body}" stroke-width="6"/>'
    )


def _night_light(p: Palette) -> str:
    return (
        '<circle cx="100" cy="106" r="58" fill="#fff3cf" opacity=".6"/>'
        '<circle cx="100" cy="108" r="40" fill="#ffe9a8"/>'
        '<path d="M76 92a30 30 0 0118-17" fill="none" stroke="#fff" stroke-width="6" stroke-linecap="round"/>'
        f'<path d="M72 138h56l8 27H64z" fill="{p.body}"/><path d="M70 132h60v9H70z" fill="{p.shade}"/>'
    )


def _floor_lamp(p: Palette) -> str:
    return (
        f'<path d="M98 84h4v76h-4zM78 160h44v6H78z" fill="{p.shade}"/>'
        f'<path d="M80 34h40l18 54H62z" fill="{p.body}"/><path d="M62 88h76l-2-7H64z" fill="#ffe9a8"/>'
    )


def _vase(p: Palette) -> str:
    return (
        '<path d="M100 74C96 48 84 38 74 30M101 74c4-30 14-36 26-46M100 74V26" fill="none" stroke="#6d8a5b" '
        'stroke-width="3"/><g fill="#e7b7a4"><circle cx="73" cy="29" r="8"/><circle cx="128" cy="27" r="8"/>'
        '<circle cx="100" cy="22" r="8"/></g>'
        f'<path d="M86 72h28c-4 24 26 34 22 66-2 18-12 28-36 28s-34-10-36-28c-4-32 26-42 22-66z" fill="{p.body}"/>'
        f'<path d="M66 124c20 8 48 8 68 0" fill="none" stroke="{p.shade}" stroke-width="5"/>'
    )


def _pitcher(p: Palette) -> str:
    return (
        f'<path d="M132 84c34-6 30 52-4 48" fill="none" stroke="{p.shade}" stroke-width="8"/>'
        f'<path d="M62 54l76 6-6 26c10 40 6 80-32 80s-44-34-30-84z" fill="{p.body}"/>'
        f'<path d="M64 62l73 5-1 8-70-5z" fill="{p.shade}"/>'
    )


def _bowl(p: Palette) -> str:
    return (
        f'<path d="M78 158h44v8H78z" fill="{p.shade}"/><path d="M38 98h124c0 36-28 62-62 62s-62-26-62-62z" '
        f'fill="{p.body}"/><ellipse cx="100" cy="98" rx="62" ry="11" fill="{p.shade}"/>'
    )


def _pot(p: Palette) -> str:
    return (
        f'<path d="M142 92c32 0 28 46-4 46" fill="none" stroke="{p.shade}" stroke-width="8"/>'
        f'<path d="M62 128L28 88l10-6 32 26z" fill="{p.shade}"/>'
        f'<path d="M60 84h82l6 54c0 18-14 27-47 27s-47-9-47-27z" fill="{p.body}"/>'
        f'<path d="M68 74h66l8 10H60z" fill="{p.shade}"/><circle cx="101" cy="68" r="8" fill="{p.body}"/>'
    )


def _cushion(p: Palette) -> str:
    return (
        f'<path d="M44 62c30 8 82 8 112 0 8 34 8 66 0 100-30-8-82-8-112 0-8-34-8-66 0-100z" fill="{p.body}"/>'
        '<path d="M62 70v86M81 73v80M100 74v78M119 73v80M138 70v86" '
        f'stroke="{p.shade}" stroke-width="3" opacity=".6"/>'
    )


def _folded(p: Palette) -> str:
    return (
        f'<rect x="42" y="136" width="116" height="28" rx="12" fill="{p.shade}"/>'
        f'<rect x="46" y="106" width="108" height="28" rx="12" fill="{p.body}"/>'
        f'<rect x="42" y="76" width="116" height="28" rx="12" fill="{p.shade}"/>'
        f'<path d="M60 76v28M70 76v28M130 106v28M140 106v28M60 136v28M70 136v28" stroke="#fff" stroke-width="3" '
        'opacity=".7"/>'
    )


def _rug(p: Palette) -> str:
    return (
        f'<path d="M58 44h84v112H58z" fill="{p.body}"/><path d="M68 54h64v92H68z" fill="none" stroke="{p.shade}" '
        f'stroke-width="4"/><path d="M100 66l22 34-22 34-22-34z" fill="{p.shade}"/>'
        '<path d="M60 40v4m10-4v4m10-4v4m10-4v4m10-4v4m10-4v4m10-4v4m10-4v4m10-4v4M60 156v8m10-8v8m10-8v8m10-8v8'
        'm10-8v8m10-8v8m10-8v8m10-8v8m10-8v8" stroke="#b8ad98" stroke-width="3"/>'
    )


def _book(p: Palette) -> str:
    return (
        f'<path d="M62 42h80v122H62z" fill="#fffdf6" transform="translate(4 2)"/>'
        f'<rect x="58" y="40" width="82" height="124" rx="4" fill="{p.body}"/>'
        f'<path d="M58 44a4 4 0 014-4h10v124H62a4 4 0 01-4-4z" fill="{p.shade}"/>'
        '<rect x="86" y="64" width="40" height="22" rx="2" fill="#fffdf6" opacity=".9"/>'
        f'<path d="M126 40v124" stroke="{p.shade}" stroke-width="3"/>'
    )


def _letters(p: Palette) -> str:
    return (
        f'<path d="M40 88h112v76H40z" fill="{p.shade}"/><path d="M50 66h104v76H50z" fill="#fffdf6"/>'
        f'<path d="M46 92h116v72H46z" fill="{p.body}"/><path d="M46 92l58 40 58-40" fill="none" stroke="{p.shade}" '
        'stroke-width="4"/><circle cx="104" cy="132" r="9" fill="#a33b2a"/>'
    )


def _pan(p: Palette) -> str:
    return (
        f'<path d="M134 108h54v9h-54z" fill="{p.shade}"/>'
        f'<path d="M36 98h104v50c0 12-8 17-20 17H56c-12 0-20-5-20-17z" fill="{p.body}"/>'
        f'<path d="M32 92h112v9H32z" fill="{p.shade}"/>'
        '<path d="M70 80c-8-12 8-18 0-30M100 80c-8-12 8-18 0-30" fill="none" stroke="#fff" stroke-width="4"/>'
    )


def _board(p: Palette) -> str:
    return (
        f'<path d="M94 26h12v34H94z" fill="{p.body}"/><rect x="60" y="54" width="80" height="110" rx="12" '
        f'fill="{p.body}"/><circle cx="100" cy="36" r="4" fill="{p.shade}"/>'
        '<path d="M72 74c18 8 40-8 56 0M72 104c18 8 40-8 56 0M72 134c18 8 40-8 56 0" fill="none" '
        f'stroke="{p.shade}" stroke-width="3"/>'
    )


def _jar(p: Palette) -> str:
    return (
        f'<rect x="64" y="70" width="72" height="95" rx="12" fill="{p.body}"/>'
        f'<rect x="70" y="50" width="60" height="22" rx="5" fill="{p.shade}"/>'
        f'<rect x="80" y="100" width="40" height="34" rx="3" fill="#fffdf6"/><path d="M88 112h24M88 121h16" '
        f'stroke="{p.shade}" stroke-width="3"/>'
    )


def _plant(p: Palette) -> str:
    return (
        '<g fill="#5f8f58"><path d="M100 110C62 96 58 62 64 46c24 8 38 32 36 64z"/>'
        '<path d="M100 110c38-14 42-48 36-64-24 8-38 32-36 64z"/></g>'
        '<path d="M100 110C84 80 92 42 100 30c8 12 16 50 0 80z" fill="#78a86d"/>'
        f'<path d="M66 112h68l-9 53H75z" fill="{p.body}"/><path d="M60 104h80v13H60z" fill="{p.shade}"/>'
    )


def _trowel(p: Palette) -> str:
    return (
        f'<rect x="91" y="30" width="18" height="54" rx="9" fill="{p.body}"/>'
        f'<path d="M96 84h8v18h-8z" fill="#8d979c"/><path d="M72 100h56c4 32-12 56-28 66-16-10-32-34-28-66z" '
        'fill="#b4bcc0"/><path d="M100 104v54" stroke="#8d979c" stroke-width="3"/>'
    )


SHAPES: dict[str, Callable[[Palette], str]] = {
    "Desk Lamp": _desk_lamp, "Pendant": _pendant, "Lantern": _lantern, "Night Light": _night_light,
    "Floor Lamp": _floor_lamp,
    "Vase": _vase, "Pitcher": _pitcher, "Bowl": _bowl, "Teapot": _pot, "Candle Holder": _lantern,
    "Throw": _folded, "Cushion": _cushion, "Table Runner": _rug, "Bath Towel": _folded, "Wool Rug": _rug,
    "Notebook": _book, "Week Planner": _book, "Letter Set": _letters, "Sketchbook": _book, "Card Box": _letters,
    "Coffee Pot": _pot, "Saucepan": _pan, "Chopping Board": _board, "Pepper Mill": _jar, "Storage Jar": _jar,
    "Planter": _plant, "Watering Can": _pot, "Herb Pot": _plant, "Hand Trowel": _trowel, "Bird Bath": _bowl,
}  # fmt: skip
