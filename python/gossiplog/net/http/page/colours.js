// Colours: of roots, such that equal roots look equal and others most likely do not, and of the theme.

const LIGHT = [
  { chroma: 62, lightness: 48 },
  { chroma: 66, lightness: 61 },
  { chroma: 52, lightness: 73 },
];
const DARK = [
  { chroma: 62, lightness: 55 },
  { chroma: 62, lightness: 68 },
  { chroma: 50, lightness: 81 },
];

// Blue, orange, green, magenta, teal, olive, violet, red.
const HUES = [260, 60, 140, 335, 200, 98, 300, 20];

const dark = matchMedia("(prefers-color-scheme: dark)");
let known = new Map();
let theme = null;

// The last bytes of a root: two of them are its hue, one its lightness. A log without messages is grey, as unknown is.
export const colourOf = (root) => {
  let colour = known.get(root);
  if (colour === undefined) {
    if (root === "") colour = dark.matches ? "#6b7689" : "#a3adbb";
    else {
      const tones = dark.matches ? DARK : LIGHT;
      const hue = (parseInt(root.slice(-4), 16) / 65536) * 360;
      const { chroma, lightness } = tones[parseInt(root.slice(-6, -4) || "0", 16) % tones.length];
      colour = d3.hcl(hue, chroma, lightness).formatHex();
    }
    if (known.size > 5000) known.clear();
    known.set(root, colour);
  }
  return colour;
};

// The n-th of colours that differ from each other as far as hues and lightnesses go: 24, then they come again.
export const paletteColour = (number) => {
  const tones = dark.matches ? DARK : LIGHT;
  const { chroma, lightness } = tones[Math.floor(number / HUES.length) % tones.length];
  return d3.hcl(HUES[number % HUES.length], chroma, lightness).formatHex();
};

// The text in a node: dark on light colours.
export const inkOn = (colour) => (d3.lab(colour).l > 62 ? "#10141b" : "#ffffff");

// What those see who do not see colours.
export const shortRoot = (root) => root.slice(-4);

// A colour of the style sheet.
export const themeColour = (name) => {
  theme ??= getComputedStyle(document.documentElement);
  return theme.getPropertyValue(`--${name}`).trim();
};

// Call a function when the theme changes, after which all colours are to be asked for again.
export const onTheme = (call) =>
  dark.addEventListener("change", () => {
    known = new Map();
    theme = null;
    call();
  });
