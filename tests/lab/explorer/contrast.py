"""Finds text on a page whose contrast with what is behind it is below WCAG 2.1's level AA (1.4.3).

For: journeys. Charts are SVG; behind their text only the page counts.
"""

from playwright.sync_api import Page

_LEAST, _LEAST_LARGE = 4.5, 3.0
"""Least contrast of text, and of large text: from 24 px, or from 18.66 px in bold."""

_WEAK = """([least, leastLarge]) => {
  const pen = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d');
  const rgba = color => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = color; pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below, alpha) => [0, 1, 2].map(i => top[i] * alpha + below[i] * (1 - alpha));
  const light = c => {
    const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const own = node.parentElement, text = node.textContent.trim();
    if (!text || !own || own.closest('script, style, :disabled, [aria-disabled=true], [hidden]')) continue;
    const box = own.getBoundingClientRect(), look = getComputedStyle(own);
    if (!box.width || !box.height || look.visibility === 'hidden' || text.startsWith('keyboard_')) continue;
    const line = [];
    for (let at = own; at; at = at.parentElement) line.unshift(at);
    let back = [255, 255, 255], seen = 1;
    for (const at of line) {
      const style = getComputedStyle(at), around = at.getBoundingClientRect();
      seen *= Number(style.opacity);
      const middle = box.y + box.height / 2;  // A slider's value stands above its thumb.
      if (at !== document.body && (middle < around.top || middle > around.bottom)) continue;
      const color = rgba(style.backgroundColor);
      back = over(color, back, color[3]);
    }
    const shape = own.closest('g.node')?.querySelector('path, polygon, ellipse');  // of a graph
    if (shape) back = rgba(getComputedStyle(shape).fill);
    const color = rgba(own instanceof SVGElement ? look.fill : look.color);
    const [low, high] = [light(over(color, back, color[3] * seen)), light(back)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05), px = parseFloat(look.fontSize);
    const large = px >= 24 || (px >= 18.66 && Number(look.fontWeight) >= 700);
    if (seen * color[3] > 0 && ratio < (large ? leastLarge : least)) {
      const kind = own.closest('[data-testid]')?.dataset.testid ?? own.tagName;
      found.set(`${kind} ${ratio.toFixed(2)}`, text.slice(0, 40));
    }
  }
  return [...found].map(([kind, text]) => `${kind}: ${text}`);
}"""


def weak(page: Page) -> list[str]:
    """Returns a line for each kind of element: its contrast, and a text. Disabled ones do not count."""
    return page.evaluate(_WEAK, [_LEAST, _LEAST_LARGE])
