"""Small examples of text, pairs and a table, the defaults of a person's own data."""

from __future__ import annotations

import csv
import io
import unicodedata

SONNETS = """\
Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date:
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance, or nature's changing course, untrimm'd;
But thy eternal summer shall not fade
Nor lose possession of that fair thou ow'st;
Nor shall Death brag thou wander'st in his shade,
When in eternal lines to time thou grow'st;
So long as men can breathe or eyes can see,
So long lives this, and this gives life to thee.

When, in disgrace with fortune and men's eyes,
I all alone beweep my outcast state
And trouble deaf heaven with my bootless cries
And look upon myself and curse my fate,
Wishing me like to one more rich in hope,
Featured like him, like him with friends possess'd,
Desiring this man's art and that man's scope,
With what I most enjoy contented least;
Yet in these thoughts myself almost despising,
Haply I think on thee, and then my state,
Like to the lark at break of day arising
From sullen earth, sings hymns at heaven's gate;
For thy sweet love remember'd such wealth brings
That then I scorn to change my state with kings.

When to the sessions of sweet silent thought
I summon up remembrance of things past,
I sigh the lack of many a thing I sought,
And with old woes new wail my dear time's waste:
Then can I drown an eye, unused to flow,
For precious friends hid in death's dateless night,
And weep afresh love's long since cancell'd woe,
And moan the expense of many a vanish'd sight:
Then can I grieve at grievances foregone,
And heavily from woe to woe tell o'er
The sad account of fore-bemoaned moan,
Which I new pay as if not paid before.
But if the while I think on thee, dear friend,
All losses are restored and sorrows end.

That time of year thou mayst in me behold
When yellow leaves, or none, or few, do hang
Upon those boughs which shake against the cold,
Bare ruin'd choirs, where late the sweet birds sang.
In me thou see'st the twilight of such day
As after sunset fadeth in the west,
Which by and by black night doth take away,
Death's second self, that seals up all in rest.
In me thou see'st the glowing of such fire
That on the ashes of his youth doth lie,
As the death-bed whereon it must expire
Consumed with that which it was nourish'd by.
This thou perceivest, which makes thy love more strong,
To love that well which thou must leave ere long.

Let me not to the marriage of true minds
Admit impediments. Love is not love
Which alters when it alteration finds,
Or bends with the remover to remove:
O no! it is an ever-fixed mark
That looks on tempests and is never shaken;
It is the star to every wandering bark,
Whose worth's unknown, although his height be taken.
Love's not Time's fool, though rosy lips and cheeks
Within his bending sickle's compass come:
Love alters not with his brief hours and weeks,
But bears it out even to the edge of doom.
If this be error and upon me proved,
I never writ, nor no man ever loved.

My mistress' eyes are nothing like the sun;
Coral is far more red than her lips' red;
If snow be white, why then her breasts are dun;
If hairs be wires, black wires grow on her head.
I have seen roses damask'd, red and white,
But no such roses see I in her cheeks;
And in some perfumes is there more delight
Than in the breath that from my mistress reeks.
I love to hear her speak, yet well I know
That music hath a far more pleasing sound;
I grant I never saw a goddess go;
My mistress, when she walks, treads on the ground:
And yet, by heaven, I think my love as rare
As any she belied with false compare.
"""
_ROMAN = (
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)
# Latin, Greek and Cyrillic letters, digits and signs: blocks that no longer change between versions of Unicode.
_BLOCKS = (
    (0x20, 0x7E),
    (0xA1, 0xAC),
    (0xAE, 0x17F),
    (0x391, 0x3CE),
    (0x400, 0x45F),
    (0x2460, 0x2487),
)
_KINDS = {
    "Lu": "capital letter",
    "Ll": "small letter",
    "Nd": "number",
    "No": "number",
    "Sm": "sign",
    "Po": "sign",
    "Sc": "sign",
    "So": "sign",
    "Sk": "sign",
    "Ps": "sign",
    "Pe": "sign",
    "Pd": "sign",
    "Pc": "sign",
    "Pi": "sign",
    "Pf": "sign",
    "Zs": "sign",
    "Lo": "small letter",
    "Lt": "capital letter",
}


def roman(number: int) -> str:
    """1994 as MCMXCIV."""
    text = ""
    for value, sign in _ROMAN:
        text += sign * (number // value)
        number %= value
    return text


def roman_pairs() -> str:
    """Roman numerals and their digits, 1 to 1999, one pair a line, a tab between."""
    return "roman\tdigits\n" + "".join(f"{roman(n)}\t{n}\n" for n in range(1, 2000))


def characters() -> str:
    """Properties of some Unicode characters as CSV: the code, its column of 16 in the code chart, numbers, categories,
    missing cells, a text, and last the class."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(
        (
            "code",
            "chart column",
            "value",
            "width",
            "decomposes",
            "has capital",
            "has small",
            "name",
            "kind",
        )
    )
    codes = (code for low, high in _BLOCKS for code in range(low, high + 1))
    for code, sign in ((code, chr(code)) for code in codes if unicodedata.name(chr(code), "")):
        value = unicodedata.numeric(sign, None)
        table.writerow(
            (
                code,
                code // 16,
                "" if value is None else f"{value:g}",
                unicodedata.east_asian_width(sign),
                _yes(unicodedata.decomposition(sign)),
                _yes(sign != sign.upper()),
                _yes(sign != sign.lower()),
                unicodedata.name(sign).lower(),
                _KINDS[unicodedata.category(sign)],
            )
        )
    return out.getvalue()


def _yes(holds: object) -> str:
    return "yes" if holds else "no"
