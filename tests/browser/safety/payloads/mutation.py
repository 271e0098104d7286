"""Texts that are harmless when first parsed, and become harmful when they are serialized and parsed again."""

# ruff: noqa: E501 - a shape stays in one piece

from __future__ import annotations

from tests.browser.safety.payloads.marks import RAN

IMG = f"<img src=x onerror={RAN}>"
DEEP = 520  # past the depth at which parsers flatten

SHAPES = {
    "noscript-title": f"<noscript><p title='</noscript>{IMG}'>",
    "noscript-style": f"<noscript><style></noscript>{IMG}",
    "template-content": f"<template>{IMG}</template>",
    "template-shadow": f"<div><template shadowrootmode=open>{IMG}<slot></slot></template></div>",
    "template-shadow-old": f"<div><template shadowroot=open><script>{RAN}</script></template></div>",
    "template-nested": f"<template><template><template>{IMG}</template></template></template>",
    "math-mglyph-style": f"<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror={RAN}&gt;'>",
    "math-mglyph-form": f"<form><math><mtext></form><form><mglyph><style></math>{IMG}",
    "math-annotation-xml": f"<math><annotation-xml encoding='text/html'><style>{IMG}</style></annotation-xml></math>",
    "math-annotation-integration": f"<math><annotation-xml encoding=application/xhtml+xml><p><style><!--</style>{IMG}-->",
    "math-mi-malignmark": f"<math><mi><malignmark><style></style>{IMG}</malignmark></mi></math>",
    "math-ms-table": f"<table><math><mi><table><mglyph><noscript></noscript><style>{IMG}</style>",
    "svg-style-comment": f"<svg><style><!--</style><a title='--></style>{IMG}'></svg>",
    "svg-p-style": f"<svg></p><style><a title='</style>{IMG}'>",
    "svg-desc-style": f"<svg><desc><style><svg></style>{IMG}</svg></desc></svg>",
    "svg-title-cdata": f"<svg><title><![CDATA[</title>{IMG}]]></title></svg>",
    "svg-cdata-text": f"<svg><![CDATA[><{IMG}]]></svg>",
    "svg-foreignobject-iframe": f"<svg><foreignObject><iframe><p title='</iframe>{IMG}'></foreignObject></svg>",
    "svg-font-breakout": f"<svg><font color=red><style><a id='</style>{IMG}'>",
    "svg-select-breakout": f"<select><svg><style></select>{IMG}</style></svg>",
    "select-template": f"<select><template><option></select>{IMG}</template>",
    "table-caption": f"<table><caption><svg><style><b title='</style>{IMG}'></caption></table>",
    "table-foster": f"<table>{IMG}<tr><td><table><a><table>{IMG}",
    "adoption-agency": f"<a><b><i><a><div></b>{IMG}</i></a></div>",
    "form-in-form": f"<form id=a><div></form><form><input name=attributes><input name=parentNode>{IMG}",
    "deep-nesting": "<b>" * DEEP + f"<svg><style><p title='</style>{IMG}'>",
    "deep-form-table": "<form><table>" * 60 + f"</form><form>{IMG}",
    "noembed-title": f"<noembed><p title='</noembed>{IMG}'>",
    "noframes-title": f"<noframes><p title='</noframes>{IMG}'>",
    "xmp-title": f"<xmp><p title='</xmp>{IMG}'>",
    "textarea-title": f"<textarea><p title='</textarea>{IMG}'>",
    "listing-newline": f"<listing>\n\n{IMG}</listing><pre>\n\n\n{IMG}</pre>",
    "attribute-backtick-ie": f"<p title='``onmouseover={RAN}'>x</p>",
    "attribute-no-close": f'<p title="<img src=x onerror={RAN}>',
    "processing-in-svg": f"<svg><?x <style>?><p title='</style>{IMG}'>",
    "comment-in-xml": f"<svg><!--><p title='-->{IMG}'></svg>",
    "nested-quotes-in-comment": f"<!--<p title='-->{IMG}-->'>",
    "option-in-svg-title": f"<svg><title><option><style></title>{IMG}</style>",
    "dialog-in-p-in-svg": f"<svg><p><dialog open><style></p>{IMG}</style></dialog></svg>",
    "is-attribute": f"<p is='x-{IMG}' slot='{IMG}'>x</p>",
    "ruby-rtc": f"<ruby><rtc><svg><rp><style></rp>{IMG}</style></svg></rtc></ruby>",
    "hr-in-select": f"<select><hr><math><mtext><hr><style></select>{IMG}",
}
