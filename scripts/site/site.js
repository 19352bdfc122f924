// Improves the site for keyboards and screen readers: a box that scrolls sideways can be focused,
// and the search has a name.
(() => {
  const mark = () => {
    for (const box of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap, .md-typeset__table")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  const begin = () => {
    document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
    const article = document.querySelector("article");
    if (!article) return;
    new ResizeObserver(mark).observe(article);
    new MutationObserver(mark).observe(article, { childList: true, subtree: true }); // the theme puts boxes around tables
    mark();
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin);
  else begin();
})();
