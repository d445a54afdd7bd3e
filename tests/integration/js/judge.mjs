// What canvas-js would make of stored values, for the fuzzer: the bytes that it verifies signatures over.

import * as cbor from "@ipld/dag-cbor";
import * as json from "@ipld/dag-json";
import { prepareMessage } from "@canvas-js/utils";
import { CID } from "multiformats/cid";

const codecs = { "dag-cbor": cbor, "dag-json": json };

// Bytes that maps may pass for, and elements that a list may be joined of: with more, canvas-js works for seconds to for
// ever, or its process ends; see docs/wire-format.md.
const MAX_PASSING = 2 ** 22;
const MAX_JOINED = 2 ** 20;

class Untried extends Error {}

const passes = (value) => value instanceof Uint8Array && !ArrayBuffer.isView(value);

const lengthOf = (value) => {
  try {
    return Number(value.length);
  } catch {
    return 0;
  }
};

const inheritsFromList = (value) => {
  for (let at = Object.getPrototypeOf(value); at !== null; at = Object.getPrototypeOf(at)) {
    if (Array.isArray(at) && at !== Array.prototype) return true;
  }
  return false;
};

// How many bytes maps pass for, as far as they are encoded, and whether any do. Throws where canvas-js must not be asked.
const weigh = (top) => {
  const pending = [[top, true]];
  const passing = [];
  const lists = [];
  let found = false;
  while (pending.length > 0) {
    const [value, kept] = pending.pop();
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) continue;
    if (!Array.isArray(value) && inheritsFromList(value)) lists.push(value);
    if (value instanceof CID && passes(value.bytes)) lists.push({ length: Infinity });
    found ||= passes(value);
    if (passes(value) && kept) passing.push(value);
    for (const key of Object.keys(value)) pending.push([value[key], kept && !passes(value)]);
    const prototype = Object.getPrototypeOf(value);
    if (prototype !== null && prototype.constructor?.prototype !== prototype) pending.push([prototype, false]);
  }
  if (found && lists.some(({ length }) => typeof length !== "object" && length > MAX_JOINED)) throw new Untried();
  return { found, total: passing.reduce((sum, value) => sum + (Math.max(0, lengthOf(value)) || 0), 0) };
};

// Encodings that differ have bytes in them that were in memory by chance: here they are first these, then those.
const { allocUnsafe } = Buffer;
const encodeOver = (byte, codec, message) => {
  // Has the encoder let go of the chunk that it keeps.
  cbor.encode(["a".repeat(60), "b".repeat(60), "c".repeat(60)]);
  Buffer.allocUnsafe = (size) => allocUnsafe(size).fill(byte);
  try {
    return codec.encode(prepareMessage(message));
  } finally {
    Buffer.allocUnsafe = allocUnsafe;
  }
};

// The bytes that a value is signed over, or why it is refused.
const judge = (log, value) => {
  const { signature, message } = log.decode(value);
  const codec = codecs[signature.codec];
  if (codec === undefined) throw new Error("unknown codec");
  const raw = weigh(message.payload);
  const copied = weigh(prepareMessage(message).payload);
  if (raw.total > MAX_PASSING || copied.total > MAX_PASSING) throw new Error("a map that passes for too much");
  let signed;
  if (raw.found || copied.found) {
    signed = encodeOver(0xaa, codec, message);
    if (Buffer.compare(signed, encodeOver(0x55, codec, message)) !== 0) throw new Error("bytes from memory");
  } else {
    signed = codec.encode(prepareMessage(message));
  }
  // What it stores.
  json.encode({ message, signature });
  return signed;
};

// For each value the bytes, or null where it is refused, and the reason: "untried" where canvas-js might never end.
export const judgeAll = (log, values) =>
  values.map((value) => {
    try {
      return { signed: judge(log, value), reason: "" };
    } catch (error) {
      return { signed: null, reason: error instanceof Untried ? "untried" : String(error).slice(0, 200) };
    }
  });
