// The connection to the server: sends messages, and passes on what comes back.

import { unpack } from "./frames.js";

const ACKNOWLEDGE = 3; // every so many frames
const PING = 20_000; // ms

export class Socket {
  // `controls` gives what the session begins with; `onMessage` gets each JSON message, `onFrame` each frame
  constructor(controls, onMessage, onFrame) {
    Object.assign(this, { controls, onMessage, onFrame, number: 0, tries: 0, latest: 0, acknowledged: 0 });
    setInterval(() => this.send("ping"), PING);
    this.open();
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/session`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.tries = this.latest = this.acknowledged = 0;
      this.send("set", { changes: this.controls() });
    };
    this.socket.onmessage = ({ data }) => {
      if (typeof data === "string") this.onMessage(JSON.parse(data));
      else {
        const frame = unpack(data);
        this.latest = frame.frame;
        this.onFrame(frame);
      }
    };
    this.socket.onclose = ({ code }) => {
      if (code === 1013) return;
      this.onMessage({ lost: true });
      setTimeout(() => this.open(), Math.min(8000, 500 * 2 ** this.tries++));
    };
  }

  get ready() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  // Send a message and return its number; 0 if there is no connection
  send(verb, more = {}) {
    if (!this.ready) return 0;
    this.number += 1;
    this.socket.send(JSON.stringify({ do: verb, id: this.number, ...more }));
    return this.number;
  }

  // Acknowledge frames once they are drawn: the server sends no more than a few ahead
  drawn() {
    if (this.latest - this.acknowledged < ACKNOWLEDGE) return;
    this.acknowledged = this.latest;
    this.send("drawn", { frame: this.latest });
  }

  sendFile(file) {
    if (this.ready) this.socket.send(file);
  }
}
