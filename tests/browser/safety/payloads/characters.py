"""Control, bidirectional and look-alike characters, in names and around tags."""

from __future__ import annotations

from tests.browser.safety.payloads.marks import RAN

IMG = f"<img src=x onerror={RAN}>"

SHAPES = {
    "bidi-override-name": "\u202egpj.exe\u202c\u202e<img src=x onerror=window.__ran=1>",
    "bidi-isolates-left-open": f"\u2066\u2067\u2068 report.md {IMG}",
    "bidi-closes-too-much": f"\u2069\u2069\u202c\u202c{IMG}\u202e",
    "marks-of-direction": f"\u200f\u200e\u061c<img\u200f src=x onerror={RAN}>",
    "zero-width-in-tag": f"<im\u200bg src=x onerror={RAN}><img\u200b src=x onerror={RAN}>",
    "control-characters": f"<img\x01src=x\x02onerror={RAN}\x1b>\x07\x08",
    "vertical-tab": f"<img\x0bsrc=x\x0bonerror={RAN}>",
    "null-before-angle": f"\0<img src=x onerror={RAN}>\0",
    "nbsp-between-attributes": f"<img\u00a0src=x\u3000onerror={RAN}>",
    "line-separators": f"<img src=x\u2028onerror={RAN}\u2029>",
    "next-line": f"<img src=x\u0085onerror={RAN}>",
    "bom-everywhere": f"\ufeff<\ufeffimg src=x onerror={RAN}>",
    "noncharacters": f"\ufdd0\ufffe\U0001ffff{IMG}",
    "private-use-and-tags": "\ue000\U000e0069\U000e006d\U000e0067" + IMG,
    "combining-after-angle": f"<\u0338img src=x onerror={RAN}> \u226e",
    "combining-tower": "x" + "\u0301\u0489" * 60 + IMG,
    "long-s-and-kelvin": f"<\u017fcript>{RAN}</\u017fcript> <lin\u212a rel=stylesheet href=x>",
    "turkish-i": f"<scr\u0131pt>{RAN}</scr\u0131pt> <\u0130MG src=x onerror={RAN}>",
    "math-letters": f"<\U0001d4c8\U0001d4b8\U0001d4c7ipt>{RAN}</script>",
    "halfwidth-forms": f"\uff1cimg src\uff1dx onerror\uff1d{RAN}\uff1e \ufe64svg onload={RAN}\ufe65",
    "angle-lookalikes": f"\u2039script\u203a{RAN} \u3008img src=x onerror={RAN}\u3009",
    "astral-inside-tag": f"<\U0001f409img src=x onerror={RAN}>\U00020000<img \U0001f409 src=x onerror={RAN}>",
    "overlong-as-latin": f"\u00c0\u00bcscript\u00c0\u00be{RAN}",
    "html-in-percent": f"%3Cimg src=x onerror={RAN}%3E %253Cscript%253E",
    "html-in-escapes": f"\\x3cimg src=x onerror={RAN}\\x3e \\u003cscript\\u003e{RAN}",
    "template-braces": f"{{{{constructor.constructor('{RAN}')()}}}} ${{{RAN}}} <%= {RAN} %> #{{{RAN}}}",
    "words-of-the-page": "send retry {n} {vars} constructor __proto__ toString short_retrieving",
    "json-in-html": '</script><script>{"__proto__":{"__ran":1}}</script>',
}
