import { parentPort, workerData } from "node:worker_threads";
import { Slots } from "../../src/shared/ipc/handshake/slots.js";

/** What the reader saw of the generations that were published in slot 0. */
export interface ReaderReport {
  readonly taken: number[];
  /** Generations whose payload was mixed or wrong, although the acknowledgement was accepted. */
  readonly torn: number[];
  readonly refused: number;
}

export interface ReaderData {
  readonly buffer: SharedArrayBuffer;
  /** Contains two Int32: the generation that was published last, and a flag that is 1 at the end of the test. */
  readonly control: SharedArrayBuffer;
}

const { buffer, control }: ReaderData = workerData;
const slots = new Slots(buffer);
const controlWords = new Int32Array(control);
const taken: number[] = [];
const torn: number[] = [];
let refused = 0;

parentPort!.postMessage("reading");
while (Atomics.load(controlWords, 1) === 0) {
  const claim = { slot: 0, generation: Atomics.load(controlWords, 0) };
  if (!slots.isPublished(claim)) continue;
  const text = slots.copy(0).toString("latin1");
  if (!slots.acknowledge(claim)) {
    refused += 1;
    continue;
  }
  taken.push(claim.generation);
  const letter = letterOf(claim.generation);
  if (text !== letter.repeat(text.length) || text.length === 0) torn.push(claim.generation);
}
const seen: ReaderReport = { taken, torn, refused };
parentPort!.postMessage(seen);

function letterOf(generation: number): string {
  return String.fromCodePoint(97 + (generation % 26));
}
