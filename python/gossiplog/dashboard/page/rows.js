// Where peers stand that are connected in a row or a ring: their order tells, and no force would find it.

const DISTANCE = 74; // between two neighbours
const MOST_STRAIGHT = 8; // peers in a row that is not folded
const LABELS = new Intl.Collator("en", { numeric: true });

// The places of peers by name: [x, y] around the origin; null for a network that is neither.
// wasRing: whether it was a ring, which it stays while edges of it are cut.
export const placesInRow = (state, wasRing) => {
  const peers = [...state.peers];
  if (peers.length < 3 || state.edges.size === 0 || peers.some(([, { kind }]) => kind !== "peer")) return null;
  peers.sort(([, one], [, other]) => LABELS.compare(one.label, other.label));
  const numbers = new Map(peers.map(([name], number) => [name, number]));
  const last = peers.length - 1;
  let isRing = wasRing;
  for (const { peers: ends } of state.edges.values()) {
    const gap = Math.abs(numbers.get(ends[0]) - numbers.get(ends[1]));
    if (gap !== 1 && gap !== last) return null;
    isRing ||= gap === last;
  }
  const place = isRing ? onCircle(peers.length) : inRows(peers.length);
  return { isRing, places: new Map(peers.map(([name], number) => [name, place(number)])) };
};

const onCircle = (count) => {
  const radius = (count * DISTANCE) / (2 * Math.PI);
  return (number) => {
    const angle = (2 * Math.PI * number) / count - Math.PI / 2;
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  };
};

// A long row goes back and forth.
const inRows = (count) => {
  const wide = count <= MOST_STRAIGHT ? count : Math.ceil(Math.sqrt(2 * count));
  const rows = Math.ceil(count / wide);
  return (number) => {
    const row = Math.floor(number / wide);
    const column = row % 2 === 0 ? number % wide : wide - 1 - (number % wide);
    return [(column - (wide - 1) / 2) * DISTANCE, (row - (rows - 1) / 2) * DISTANCE];
  };
};
