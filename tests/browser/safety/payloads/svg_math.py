"""Names of other namespaces: drawings and formulas that run."""

# ruff: noqa: E501 - a shape stays in one piece

from __future__ import annotations

from tests.browser.safety.payloads.marks import HOME, RAN

SHAPES = {
    "svg-script": f"<svg><script>{RAN}</script></svg>",
    "svg-script-href": f"<svg><script href=data:text/javascript,{RAN} /></svg>",
    "svg-script-entities": "<svg><script>window&#46;__ran&#61;1</script></svg>",
    "svg-a-xlink": f"<svg><a xlink:href='javascript:{RAN}'><text y=20>click</text></a></svg>",
    "svg-animate-href": f"<svg><a><animate attributeName=href values=javascript:{RAN} /><text y=9>x</text></a></svg>",
    "svg-animate-onbegin": f"<svg><animate onbegin={RAN} attributeName=x dur=1s></svg>",
    "svg-set-onbegin": f"<svg><set attributeName=x onbegin={RAN}></svg>",
    "svg-set-href": f"<svg><a id=z><set attributeName=href to=javascript:{RAN} begin=0s /></a></svg>",
    "svg-animatetransform": f"<svg><animateTransform onbegin={RAN} attributeName=transform></svg>",
    "svg-animatemotion": f"<svg><animateMotion onend={RAN} dur=1ms path=M0,0></svg>",
    "svg-use-data": f"<svg><use href=\"data:image/svg+xml,<svg id='x' onload='{RAN}'/>#x\"></svg>",
    "svg-image-onload": f"<svg><image href=/web/0/icon.svg onload={RAN}></svg>",
    "svg-foreignobject": f"<svg><foreignObject><body onload={RAN}><img src=x onerror={RAN}></foreignObject></svg>",
    "svg-handler": f"<svg><handler xmlns:ev=x ev:event=load>{RAN}</handler></svg>",
    "svg-onunload-title": f"<svg><title onload={RAN}>x</title><desc><img src=x onerror={RAN}></desc></svg>",
    "svg-feimage": f"<svg><filter id=f><feImage href='{HOME}' onload={RAN} /></filter></svg>",
    "svg-onfocus": f"<svg><rect tabindex=1 autofocus onfocus={RAN} /></svg>",
    "svg-entity": "<svg><text>&lt;script&gt;window.__ran=1&lt;/script&gt;</text></svg>",
    "math-href": f"<math href='javascript:{RAN}'>click</math>",
    "math-xlink": f"<math><mi xlink:href='javascript:{RAN}'>click</mi></math>",
    "math-maction": f"<math><maction actiontype='statusline#{HOME}' xlink:href='javascript:{RAN}'>x</maction></math>",
    "math-onfocus": f"<math tabindex=1 autofocus onfocus={RAN}><mn>1</mn></math>",
    "math-annotation-script": f"<math><semantics><annotation encoding=text/html><script>{RAN}</script></annotation></semantics></math>",
}
