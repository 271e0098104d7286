"""Documents inside the document, and elements that change what the whole page means."""

# ruff: noqa: E501 - a shape stays in one piece

from __future__ import annotations

from tests.browser.safety.payloads.marks import HOME, RAN, UP

SHAPES = {
    "iframe-srcdoc": f"<iframe srcdoc='<script>{UP}</script>'></iframe>",
    "iframe-srcdoc-entities": f"<iframe srcdoc='&lt;img src=x onerror={UP}&gt;'></iframe>",
    "iframe-javascript": f"<iframe src=javascript:{UP}></iframe>",
    "iframe-data": f"<iframe src='data:text/html,<script>{UP}</script>'></iframe>",
    "iframe-onload": f"<iframe onload={RAN}></iframe>",
    "iframe-blob-name": f"<iframe name='{RAN}' src='javascript:eval(name)'></iframe>",
    "iframe-own-file": "<iframe src=/web/0/icon.svg onload=window.__ran=1></iframe>",
    "iframe-unclosed": f"<iframe src=javascript:{UP}",
    "frameset": f"<frameset onload={RAN}><frame src=javascript:{UP}></frameset>",
    "object-javascript": f"<object data=javascript:{UP}></object>",
    "object-data-html": f"<object type=text/html data='data:text/html,<script>{UP}</script>'></object>",
    "object-onerror": f"<object data=x onerror={RAN}></object>",
    "object-param": f"<object><param name=src value=javascript:{UP}><param name=code value={HOME}></object>",
    "embed-javascript": f"<embed src=javascript:{UP}>",
    "embed-svg": f"<embed type=image/svg+xml src=\"data:image/svg+xml,<svg onload='{UP}'/>\">",
    "applet": f"<applet code=javascript:{UP} archive={HOME}></applet>",
    "portal": f"<portal src=javascript:{UP} onload={RAN}></portal>",
    "fencedframe": f"<fencedframe src=http:{HOME}></fencedframe>",
    "meta-refresh-javascript": f"<meta http-equiv=refresh content='0;url=javascript:{RAN}'>",
    "meta-refresh-data": f"<meta http-equiv=refresh content='0;url=data:text/html,<script>{RAN}</script>'>",
    "meta-set-cookie": "<meta http-equiv=Set-Cookie content='a=b'>",
    "meta-loosens-policy": "<meta http-equiv=Content-Security-Policy content=\"script-src 'unsafe-inline'\">",
    "base-javascript": f"<base href=javascript:{RAN}//><a href=#>x</a>",
    "base-target": "<base target='_parent'><a href=https://evil.test>x</a>",
    "link-import": f"<link rel=import href='data:text/html,<script>{RAN}</script>'>",
    "link-stylesheet-javascript": f"<link rel=stylesheet href=javascript:{RAN}>",
    "link-onload": f"<link rel=stylesheet href=/web/0/css/base.css onload={RAN}>",
    "style-onload": f"<style onload={RAN}>p{{}}</style>",
    "style-expression": f"<p style='width:expression({RAN});behavior:url(x.htc)'>x</p>",
    "style-import-javascript": f"<style>@import 'javascript:{RAN}';</style>",
    "xml-island": f"<xml id=x><x><![CDATA[<img src=x onerror={RAN}>]]></x></xml><span datasrc=#x dataformatas=html>",
    "xslt": "<?xml-stylesheet type='text/xsl' href='data:text/xml,<x/>'?><x/>",
}
