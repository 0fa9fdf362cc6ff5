// What is wrong with the place of things on a page: a list of sentences.  `empty`: a block may end so many pixels below
// what is in it; `whole`: in a window at least so wide, nothing but logs is wider than its room.
([empty, whole]) => {
  const NOTHING = ["", "-", "--", "–"];
  const wide = innerWidth >= whole;
  const shown = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 1;
  const name = (element) => `${element.tagName.toLowerCase()}.${element.className} "${element.textContent.trim().slice(0, 30)}"`;

  function outOfReach(tab) {
    const { left, right, top, bottom } = tab.getBoundingClientRect();
    const there = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    return left < 0 || right > innerWidth || !tab.contains(there);
  }

  function ofElement(element) {
    const style = getComputedStyle(element);
    const beyond = element.scrollWidth > element.clientWidth + 1;
    const ellipsis = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none";
    const { left, right } = element.getBoundingClientRect();
    if (["hidden", "clip"].includes(style.overflowX) && beyond && !ellipsis) return "cut";
    if (["auto", "scroll"].includes(style.overflowX) && beyond && wide && !element.matches(".log")) return "wider than its room";
    if (["auto", "scroll"].includes(style.overflowX) && beyond && element.tabIndex < 0) return "not scrolled by keys";
    if (element.matches(".job-body .col-why") && (left < 0 || right > innerWidth)) return "off the screen";
    if (element.matches(".u-value") && NOTHING.includes(element.textContent.trim())) return "a value that says nothing";
    if (element.matches(".u-legend :is(th, td)") && parseFloat(style.borderBottomWidth)) return "a stray line";
    return "";
  }

  /** Pixels from the end of the last thing that can be seen in the block to the block's own. */
  function emptyPixels(block) {
    let last = -Infinity;
    const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const text = node.nodeType === Node.TEXT_NODE;
      if (!(text ? node.data.trim() && shown(node.parentElement) : node.matches("canvas, input, select, button, .map") && shown(node))) continue;
      const range = document.createRange();
      text ? range.selectNodeContents(node) : range.selectNode(node);
      last = Math.max(last, range.getBoundingClientRect().bottom);
    }
    return Math.round(block.getBoundingClientRect().bottom - last);
  }

  const faults = document.documentElement.scrollWidth > innerWidth ? ["the body scrolls sideways"] : [];
  for (const tab of document.querySelectorAll(".side a")) if (outOfReach(tab)) faults.push(`out of reach: ${name(tab)}`);
  for (const element of [...document.querySelectorAll("#app *")].filter(shown)) {
    const fault = ofElement(element);
    if (fault) faults.push(`${fault}: ${name(element)}`);
  }
  for (const block of [...document.querySelectorAll(".side, .card, .job-table, .log, .timeline")].filter(shown)) {
    if (getComputedStyle(block).position === "sticky") continue; // the list of views beside the page is as high as the window
    const pixels = emptyPixels(block);
    if (pixels > empty) faults.push(`${pixels} empty pixels: ${name(block)}`);
  }
  return faults;
}
