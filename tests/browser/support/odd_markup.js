/**
 * Every element and attribute that this page does not make itself, in words; [] when there is none.
 * `where` is a selector or an element; `strict` knows only what an answer may hold.
 */
(where, strict) => {
  const ANSWER = "div p br hr h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong del a table thead tbody tr th td"
    + " span button svg path bdi";
  const PAGE = "html head body main aside header footer nav section article form dialog details summary mark input"
    + " textarea select option optgroup label progress meter time kbd small output fieldset legend dl dt dd menu search"
    + " b i u s circle rect line polyline g";
  const tags = new Set(`${ANSWER} ${strict ? "" : PAGE}`.split(" "));
  const names = ("class id title rel target href start align tabindex type role lang dir hidden for name value min max"
    + " low high optimum open rows cols colspan rowspan scope list step multiple accept checked disabled readonly"
    + " required selected inert draggable spellcheck autocomplete autocapitalize enterkeyhint inputmode maxlength"
    + " minlength placeholder datetime method popover popovertarget viewBox d cx cy r rx x y x1 x2 y1 y2 points width"
    + " height fill stroke transform label size wrap abbr novalidate").split(" ");
  const known = (name) => names.includes(name) || /^(aria|data|stroke)-[a-z0-9-]+$/.test(name);
  const STYLE =
    /^\s*(--[a-z-]+|translate|flex-basis|top|left|(min-|max-|contain-intrinsic-)?(height|width|size)): *[-\d.a-z% ]+;?\s*$/;
  const WEB = ["http:", "https:", "mailto:"];
  const isOwn = (url) => new URL(url, location.href).origin === location.origin;

  const inHead = ({ href, src }) => [href, src].filter((url) => url && !isOwn(url)).map((url) => `head: ${url}`);
  const oddStyle = (value) =>
    value.split(/;(?=.)/).every((rule) => !rule.trim() || STYLE.test(rule)) ? [] : [`style=${value}`];
  const oddAttribute = ({ name, value }) =>
    name === "style" ? oddStyle(value) : known(name) ? [] : [`${name}=${value}`];
  const oddLink = (node) => {
    const href = node.getAttribute("href") ?? "";
    if (!strict && (href.startsWith("#") || isOwn(href))) return [];
    const closed = node.rel === "noopener noreferrer nofollow" && node.target === "_blank";
    return WEB.includes(node.protocol) && closed ? [] : [`a href=${href} rel=${node.rel} target=${node.target}`];
  };
  const odd = (node) => {
    const tag = node.localName;
    if (node.parentNode === document.head && ["meta", "link", "script", "title"].includes(tag)) return inHead(node);
    if (tag === "img" && /^web\/\w+\/icon\.svg$/.test(node.getAttribute("src"))) return [];
    if (!tags.has(tag)) return [`<${tag}>`];
    const found = [...node.attributes].flatMap(oddAttribute);
    if (node.shadowRoot) found.push(`${tag} has a shadow root`);
    if (["__ran", "body", "head", "location", "document"].includes(node.id)) found.push(`id=${node.id}`);
    if (tag === "a") found.push(...oddLink(node));
    else if (node.hasAttribute("href")) found.push(`${tag} with href`);
    return found;
  };
  const roots = typeof where === "string" ? document.querySelectorAll(where) : [where];
  return [...new Set([...roots].flatMap((root) => [root, ...root.querySelectorAll("*")].flatMap(odd)))];
}
