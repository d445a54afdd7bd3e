// Texts of numbers and answers, and texts in elements: always as text, since names and payloads may be anybody's.

export const bytesText = (bytes) => {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (bytes < 1000) return `${unit === "B" ? Math.round(bytes) : bytes.toPrecision(3)} ${unit}`;
    bytes /= 1000;
  }
  return `${bytes.toPrecision(3)} TB`;
};

// Why a server refused what was asked.
export const reasonOf = async (answer) => {
  let reason;
  try {
    reason = (await answer.json()).error;
  } catch {
    // A proxy's, perhaps.
  }
  return typeof reason === "string" ? reason.slice(0, 500) : `the server answers with the status ${answer.status}`;
};

export const connectionText = (isThere, reason = "") =>
  isThere ? "" : `not connected: ${reason === "" ? "" : `${reason}; `}trying again`;

// Set the text of an element, unless it has it.
export const put = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
