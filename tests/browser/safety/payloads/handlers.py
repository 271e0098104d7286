"""Event handlers on elements that fire without interaction, and attributes that break out of their quotes."""

from __future__ import annotations

from tests.browser.safety.payloads.marks import RAN

SHAPES = {
    "svg-onload": f"<svg onload={RAN}>",
    "svg-slash-onload": f"<svg/onload={RAN}>",
    "body-onload": f"<body onload={RAN}>",
    "body-onpageshow": f"<body onpageshow={RAN} onhashchange={RAN}>",
    "details-ontoggle": f"<details open ontoggle={RAN}>x</details>",
    "input-autofocus": f"<input autofocus onfocus={RAN}>",
    "tabindex-autofocus": f"<b tabindex=1 autofocus onfocusin={RAN}>x</b>",
    "contenteditable-autofocus": f"<p contenteditable autofocus onfocus={RAN}>x</p>",
    "video-source-onerror": f"<video><source onerror={RAN}></video>",
    "audio-onerror": f"<audio src=x onerror={RAN} autoplay></audio>",
    "video-onloadstart": f"<video src=data:video/mp4,x onloadstart={RAN}></video>",
    "track-onerror": f"<video controls><track default src=x onerror={RAN}></video>",
    "animation-start": f"<style>@keyframes k{{}}</style><p style='animation:k' onanimationstart={RAN}>x",
    "transition-run": f"<p id=tr style='transition:all 1s' ontransitionrun={RAN} onmouseenter={RAN}>x",
    "marquee-onstart": f"<marquee onstart={RAN} loop=1 width=1>x</marquee>",
    "onscroll": f"<div onscroll={RAN} style='height:9px;overflow:auto'><br><br><br><i autofocus tabindex=1>x",
    "oncontentvisibility": f"<p oncontentvisibilityautostatechange={RAN} style='content-visibility:auto'>x",
    "onselectionchange": f"<input value=x autofocus onselectionchange={RAN}>",
    "image-alias": f"<image src=x onerror={RAN}>",
    "img-srcset-error": f"<img srcset='x 1x' onerror={RAN}>",
    "img-onload-data": "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=' onload="
    + RAN
    + ">",
    "img-no-space": f'<img/src="x"/onerror="{RAN}">',
    "img-backtick": f"<img src=`x` onerror=`{RAN}`>",
    "img-newline-attribute": f"<img src=x\nonerror\n=\n'{RAN}'\n>",
    "img-form-feed": f"<img\fsrc=x\fonerror={RAN}>",
    "img-encoded-handler": "<img src=x onerror=&#119;indow.__ran&#61;1>",
    "img-named-entity-handler": "<img src=x onerror=window.__ran&equals;1>",
    "img-unclosed": f"<img src=x onerror={RAN} ",
    "img-handler-upper": f"<IMG SRC=x OnErRoR={RAN}>",
    "img-duplicate-attribute": f"<img src=x alt=a alt='><script>{RAN}</script>' onerror={RAN}>",
    "img-title-breaks": f"<img title=\"a'><script>{RAN}</script>\" src=x onerror='{RAN}'>",
    "a-onmouseover-big": f"<a style='position:fixed;inset:0' onpointerover={RAN}>x</a>",
    "unknown-element": f"<wenmai-x onclick={RAN} autofocus tabindex=0 onfocus={RAN}>x</wenmai-x>",
    "custom-is": f"<button is=x-y autofocus onfocus={RAN}>x</button>",
    "br-onclick": f"<br onclick={RAN}><br/onfocus={RAN} autofocus tabindex=1>",
    "br-that-is-no-br": f"<br><br /><br\n/><br x onpointerrawupdate={RAN}>",
    "allowed-tag-with-handler": f"<p onfocus={RAN} tabindex=0 autofocus>x</p><code onclick={RAN}>y</code>",
    "table-with-handler": f"<table onfocus={RAN}><tr><td autofocus tabindex=1 onfocus={RAN}>x</table>",
}
