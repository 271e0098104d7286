"""Script elements, and the parser states that revive them from places where they look harmless."""

# ruff: noqa: E501 - a shape stays in one piece

from __future__ import annotations

from routes.web.page import files
from tests.browser.safety.payloads.marks import HOME, RAN

SHAPES = {
    "img-onerror": f"<img src=x onerror={RAN}>",
    "script": f"<script>{RAN}</script>",
    "script-upper-and-slash": f"<ScRiPt/x>{RAN}</sCrIpT\t>",
    "script-src": f"<script src={HOME}.js></script>",
    "script-src-data": f"<script src='data:text/javascript,{RAN}'></script>",
    "script-module": f"<script type=module>{RAN}</script>",
    "script-importmap": f'<script type=importmap>{{"imports":{{"/web/{files().version}/js/app.js":"data:text/javascript,1"}}}}</script>',
    "script-speculation": '<script type=speculationrules>{"prefetch":[{"urls":["http://evil.test/sp"]}]}</script>',
    "script-unclosed": f"<script>{RAN}//",
    "script-null-byte": f"<scr\0ipt>{RAN}</scr\0ipt>",
    "script-nested-names": f"<scr<script>ipt>{RAN}</scr</script>ipt>",
    "script-double-bracket": f"<<script>{RAN}//<</script>",
    "script-in-comment-bang": f"<!--!><script>{RAN}</script>-->",
    "script-after-comment-dash": f"<!-- --!><script>{RAN}</script>",
    "script-comment-abrupt": f"<!-->\n<script>{RAN}</script>\n-->",
    "script-cdata": f"<![CDATA[<script>{RAN}</script>]]>",
    "script-processing-instruction": f"<?xml version='1.0'?><?php <script>{RAN}</script> ?>",
    "script-doctype": f"<!DOCTYPE html [<!ENTITY x '<script>{RAN}</script>'>]>&x;",
    "script-bogus-end-tag": f"</ <script>{RAN}</script>>",
    "script-in-title": f"<title><script>{RAN}</script></title>",
    "script-leaves-title": f"<title></title><script>{RAN}</script>",
    "script-leaves-textarea": f"<textarea></textarea><script>{RAN}</script>",
    "script-leaves-xmp": f"<xmp></xmp><script>{RAN}</script>",
    "script-leaves-noembed": f"<noembed></noembed><script>{RAN}</script>",
    "script-plaintext": f"<plaintext><script>{RAN}</script>",
    "script-html-body": f"<html><head></head><body><script>{RAN}</script></body></html>",
    "script-from-entities": f"&lt;script&gt;{RAN}&lt;/script&gt;",
    "script-from-numeric-entities": f"&#60;script&#62;{RAN}&#60;/script&#62;",
    "script-from-hex-entities-unended": f"&#x3cscript&#x3e{RAN}&#x3c/script&#x3e",
    "script-from-double-entities": f"&amp;lt;script&amp;gt;{RAN}&amp;lt;/script&amp;gt;",
    "script-full-width": f"\uff1cscript\uff1e{RAN}\uff1c/script\uff1e",
    "script-escaped-markdown": f"\\<script>{RAN}\\</script>",
    "script-across-lines": f"<script\n\n>\n{RAN}\n\n</script\n>",
    "script-utf7": f"+ADw-script+AD4-{RAN}+ADw-/script+AD4-",
    "script-quoted": f"> <script>\n> {RAN}\n> </script>",
    "script-of-a-frame-forger": f"\ndata: CONTENT:<script>{RAN}</script>\n\nDONE:",
}
