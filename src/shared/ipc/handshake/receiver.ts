import { PgTaskError } from "../../errors.js";
import { Slots, type SlotReference } from "./slots.js";

/** The child thread's side of a handshake channel: receives payloads from shared memory and acknowledges them. */
export class HandshakeReceiver {
  readonly #slots: Slots;

  /** @param buffer the shared memory of the parent's HandshakeSender */
  constructor(buffer: SharedArrayBuffer) {
    this.#slots = new Slots(buffer);
  }

  /**
   * Takes a payload from shared memory and acknowledges it.
   *
   * @returns the payload, or null if the reference is stale because the parent has withdrawn the payload or because the
   * payload was already taken
   * @throws PgTaskError PROTOCOL_PAYLOAD if the slot number is not valid for this channel
   */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the message with the reference implies T
  take<T extends object>(reference: SlotReference): T | null {
    const { slot, overflow } = reference;
    if (!Number.isInteger(slot) || slot < 0 || slot >= this.#slots.count) {
      throw new PgTaskError("PROTOCOL_PAYLOAD", `expected a slot from 0 to ${this.#slots.count - 1}, got ${slot}`);
    }
    // The sender may be writing to the slot of a stale reference at this moment.
    if (!this.#slots.isPublished(reference)) return null;
    // An overflow buffer is written only once, so its content cannot change and needs no copy.
    const bytes = overflow === undefined ? this.#slots.copy(slot) : Buffer.from(overflow);
    if (!this.#slots.acknowledge(reference)) return null;
    const payload: T = JSON.parse(bytes.toString("utf8"));
    return payload;
  }
}
