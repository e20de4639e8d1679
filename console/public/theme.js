// Runs before the first paint, so that a page never flashes in the wrong theme.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("penstock.theme") || "system";
    } catch {
      return "system";
    }
  };
  const apply = () => {
    const name = chosen();
    document.documentElement.dataset.theme = name === "system" ? (dark.matches ? "dark" : "light") : name;
    dispatchEvent(new Event("penstock-theme"));
  };
  dark.addEventListener("change", apply);
  window.penstockTheme = {
    chosen,
    choose(name) {
      try {
        localStorage.setItem("penstock.theme", name);
      } catch {
        /* a private window may refuse: the choice lasts until reload */
      }
      apply();
    },
  };
  apply();
})();
