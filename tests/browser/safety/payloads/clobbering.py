"""Names and ids that shadow the page's own: `document.x`, `form.x`, `window.x`."""

# ruff: noqa: E501 - a shape stays in one piece

from __future__ import annotations

from tests.browser.safety.payloads.marks import RAN

SHAPES = {
    "id-ran": "<p id=__ran name=__ran>x</p>",
    "anchor-collection": f"<a id=config></a><a id=config name=url href='javascript:{RAN}'></a>",
    "form-attributes": f"<form id=x><input name=attributes><input name=removeAttribute></form onfocus={RAN}>",
    "form-nodename": "<form><input name=nodeName><input name=innerHTML><input id=textContent></form>",
    "img-getelementbyid": "<img name=getElementById><img name=querySelector><img name=createElement>",
    "form-submit": "<form id=composer><input name=submit><button name=requestSubmit></form>",
    "iframe-window-name": "<iframe name=trustedTypes></iframe><iframe name=localStorage></iframe>",
    "id-of-the-page": "<textarea id=question></textarea><section id=thread></section><nav id=sessions></nav>",
    "id-proto": "<p id=__proto__>x</p><p name=constructor>y</p><p id=prototype>z</p>",
    "currentscript": "<img name=currentScript><img name=baseURI><img name=defaultView>",
    "body-head": "<form name=body></form><form name=head></form><form name=documentElement></form>",
    "output-value": "<form id=y><output name=value>javascript:window.__ran=1</output></form>",
    "data-i18n": "<p data-i18n=send data-i18n-label=send data-icon=send data-index=1 class=cite>x</p>",
    "class-of-the-page": "<button class='cite copy-code' data-index=1>1</button><div class=error-card>no</div>",
    "aria-and-role": "<p role=alert aria-live=assertive aria-label='Enter your key'>Enter your key</p>",
    "slot-and-part": "<p slot=x part=part class=part style=position:fixed>x</p>",
}
