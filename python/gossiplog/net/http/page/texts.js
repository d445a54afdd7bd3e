// Texts of numbers, and texts in elements: always as text, since names and payloads may be anybody's.

export const bytesText = (bytes) => {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (bytes < 1000) return `${unit === "B" ? Math.round(bytes) : bytes.toPrecision(3)} ${unit}`;
    bytes /= 1000;
  }
  return `${bytes.toPrecision(3)} TB`;
};

// Set the text of an element, unless it has it.
export const put = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
