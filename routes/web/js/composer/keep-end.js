/** The box grows over the end of the conversation, where it may say why a question is back in it. */

const NEAR_PX = 300; // an error's card may have come below since the page went along

/** To be called before the box grows; what it gives, after. A reader who went up stays there. */
export function keepEnd() {
  const page = document.scrollingElement;
  const near = page.scrollHeight - page.scrollTop - innerHeight < NEAR_PX;
  return () => near && requestAnimationFrame(() => scrollTo({ top: page.scrollHeight, behavior: "instant" }));
}
