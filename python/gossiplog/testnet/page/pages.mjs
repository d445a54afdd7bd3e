// The page that Chromium opens: adds an iframe for each peer that the coordinator announces. Each has an origin, and so
// storage, of its own: browsers take every name under localhost for loopback.

const { pathname, port } = location;

new EventSource("pages").onmessage = ({ data }) => {
  const { number } = JSON.parse(data);
  const frame = document.createElement("iframe");
  frame.src = `http://page-${number}.localhost:${port}${pathname}peer/${number}`;
  document.body.append(frame);
};
