// Checks that run inside a page, one expression: an object of functions.
(() => {
  const CONTROLS = 'a[href], button, input, select, textarea, summary, [tabindex="0"]';
  const NAMED = `${CONTROLS}, dialog, [role=img], [role=region], [role=meter]`;

  const isSeen = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;

  // The text that a screen reader would say.
  const textOf = (element) =>
    [...element.childNodes]
      .map((node) => {
        if (node.nodeType === Node.TEXT_NODE) return node.data;
        if (node.nodeType !== Node.ELEMENT_NODE || node.getAttribute("aria-hidden") === "true") return "";
        return node.getAttribute("aria-label") ?? textOf(node);
      })
      .join("");

  const nameOf = (element) => {
    const by = element.getAttribute("aria-labelledby");
    if (element.hasAttribute("aria-label")) return element.getAttribute("aria-label");
    if (by) return document.getElementById(by)?.textContent ?? "";
    if (element.labels?.length) return [...element.labels].map(textOf).join(" ");
    return textOf(element);
  };

  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return color.startsWith("color(") ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
  };
  const over = (front, back) => front.slice(0, 3).map((value, index) => value * front[3] + back[index] * (1 - front[3]));

  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };

  // All that is painted behind an element, down to the first layer that hides what is below.
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((back, front) => over(front, back), [255, 255, 255]);
  };

  const contrast = (element) => {
    const back = behind(element);
    const [a, b] = [luminance(over(parse(getComputedStyle(element).color), back)), luminance(back)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };

  return {
    unnamed: () =>
      [...document.querySelectorAll(NAMED)]
        .filter((element) => isSeen(element) && !nameOf(element).trim())
        .map((element) => element.outerHTML.slice(0, 200)),

    // What is disabled is exempt, as in WCAG.
    lowContrast(least) {
      const found = new Map();
      const walker = document.createTreeWalker(document.querySelector("dialog[open]") ?? document.body, NodeFilter.SHOW_TEXT);
      let seen = 0;
      while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const text = walker.currentNode.data.trim();
        if (!text || !isSeen(element) || element.closest(".spoken, :disabled, noscript, script, svg, canvas")) continue;
        seen += 1;
        const ratio = contrast(element);
        if (ratio < least)
          found.set(text.slice(0, 40), [ratio.toFixed(2), getComputedStyle(element).color, behind(element).join()]);
      }
      return { seen, found: [...found] };
    },

    layoutShift: () =>
      new Promise((resolve) => {
        const sum = (entries) => entries.reduce((total, { value, hadRecentInput }) => total + (hadRecentInput ? 0 : value), 0);
        new PerformanceObserver((list) => resolve(sum(list.getEntries()))).observe({ type: "layout-shift", buffered: true });
        setTimeout(() => resolve(0), 50); // nothing has moved: the observer is not called
      }),

    markControls: () =>
      [...document.querySelectorAll(CONTROLS)]
        .filter((element) => !element.disabled && isSeen(element))
        .forEach((element) => element.setAttribute("data-reached", "no")),

    // Whether the focused element shows that it is; null if none is focused.
    noteFocus() {
      const element = document.activeElement;
      if (!element || element === document.body) return null;
      element.setAttribute("data-reached", "yes");
      const style = getComputedStyle(element);
      return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    },

    missed: () => [...document.querySelectorAll("[data-reached=no]")].map((element) => element.outerHTML.slice(0, 160)),
  };
})();
