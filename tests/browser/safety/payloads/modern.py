"""Newer parts of HTML that older filters let through."""

# ruff: noqa: E501 - a shape stays in one piece

from __future__ import annotations

from tests.browser.safety.payloads.marks import HOME, RAN

SHAPES = {
    "popover-beforetoggle": f"<button popovertarget=p>x</button><p popover id=p onbeforetoggle={RAN}>y</p>",
    "popover-ontoggle": f"<p popover=manual ontoggle={RAN} id=q>y</p><button popovertarget=q autofocus>x</button>",
    "command-showmodal": f"<button command=show-modal commandfor=d>x</button><dialog id=d oncommand={RAN}>y</dialog>",
    "interest-invoker": f"<button interestfor=i>x</button><p id=i popover oninterest={RAN}>y</p>",
    "search-element": f"<search onfocus={RAN} tabindex=1 autofocus>x</search>",
    "dialog-open": f"<dialog open onclose={RAN} oncancel={RAN}><form method=dialog><button autofocus>x</button></form></dialog>",
    "details-name": f"<details name=a open ontoggle={RAN}><summary autofocus onfocus={RAN}>x</summary></details>",
    "hidden-until-found": f"<p hidden=until-found onbeforematch={RAN}>x</p>",
    "selectedcontent": f"<select><button><selectedcontent></selectedcontent></button><option selected><img src=x onerror={RAN}></select>",
    "onscrollend": f"<div onscrollend={RAN} onscrollsnapchange={RAN} tabindex=1 autofocus onfocus={RAN}>x</div>",
    "onpointer": f"<p onpointerenter={RAN} onpointerrawupdate={RAN} onauxclick={RAN}>x</p>",
    "onsecuritypolicyviolation": f"<p onsecuritypolicyviolation={RAN}><img src=http:{HOME}></p>",
    "onunhandledrejection": f"<body onunhandledrejection={RAN} onmessage={RAN} onpopstate={RAN}>",
    "onwebkit": f"<p onwebkitanimationend={RAN} onwebkitfullscreenchange={RAN} style=animation:x>x</p>",
    "onformdata": f"<form onformdata={RAN} onsubmit={RAN}><button autofocus>x</button></form>",
    "formaction": f"<form><button formaction=javascript:{RAN}>go</button></form>",
    "form-action": f"<form action=javascript:{RAN}><input type=submit autofocus></form>",
    "form-outside-button": f"<form id=f2 action=javascript:{RAN}></form><button form=f2>x</button>",
    "button-for-composer": f"<button form=composer formaction=http:{HOME} formmethod=get>x</button>",
    "input-image-formaction": f"<form><input type=image src=x formaction=javascript:{RAN} onerror={RAN}></form>",
    "isindex": f"<isindex action=javascript:{RAN} type=image src=x onerror={RAN}>",
    "keygen": f"<keygen autofocus onfocus={RAN}>",
    "menuitem": f"<menu><menuitem onclick={RAN} label=x icon=javascript:{RAN}></menu>",
    "model-element": f"<model src={HOME} onload={RAN} onerror={RAN}></model>",
    "permission-element": f"<permission type=geolocation onpromptaction={RAN}></permission><geolocation autolocate>",
    "declarative-partial": f"<template for=thread patchfor=thread>{RAN}</template>",
    "nonce": f"<script nonce='' integrity=''>{RAN}</script><style nonce>*{{}}</style>",
    "attributionsrc": f"<img attributionsrc=http:{HOME} src=x onerror={RAN}>",
}
