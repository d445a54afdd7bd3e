// Where the messages of a graph are: a row for each, the newest first, and a lane, in which its line goes on to its
// first parent. Lines share a lane only where they lead to the same message.

// messages: the newest first, each with its parents. Returns the lane of each message, and the edges: the row and lane
// of the child, the lane that the line goes through, and the row of the parent, null where it is not among them.
export const layOut = (messages) => {
  const rows = new Map(messages.map(({ id }, row) => [id, row]));
  const lanes = []; // the message that each lane leads to, or null
  const placed = [];
  const edges = [];
  messages.forEach(({ id, parents }, row) => {
    let lane = lanes.indexOf(id);
    if (lane < 0) lane = take(lanes, id);
    // All that led here end.
    for (let other = 0; other < lanes.length; other++) if (lanes[other] === id) lanes[other] = null;
    placed.push(lane);
    for (const parent of parents) {
      let goal = lanes.indexOf(parent);
      if (goal < 0) {
        goal = lanes[lane] === null ? lane : lanes.indexOf(null);
        if (goal < 0) goal = lanes.length;
        lanes[goal] = parent;
      }
      edges.push({ child: id, parent, row, lane, through: goal, to: rows.get(parent) ?? null });
    }
  });
  return { placed, edges, width: Math.max(lanes.length, 1) };
};

const take = (lanes, id) => {
  const free = lanes.indexOf(null);
  const lane = free < 0 ? lanes.length : free;
  lanes[lane] = id;
  return lane;
};
