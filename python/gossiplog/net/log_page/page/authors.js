// The colours of authors: those that are shown at a time differ from each other, as far as colours do.

import { paletteColour } from "./colours.js";

const numbers = new Map(); // of a colour, by author

// Give each author a colour that no other one has, in the order in which they come. Those who are shown keep theirs for
// as long as they are.
export const showColours = (authors) => {
  const wanted = new Set(authors);
  for (const author of numbers.keys()) if (!wanted.has(author)) numbers.delete(author);
  const taken = new Set(numbers.values());
  let free = 0;
  for (const author of wanted) {
    if (numbers.has(author)) continue;
    while (taken.has(free)) free++;
    numbers.set(author, free++);
  }
};

export const colourOfAuthor = (author) => paletteColour(numbers.get(author));
