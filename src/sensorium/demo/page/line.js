// The line to the server: says what the visitor does, hands on what comes back.

import { unpack } from "./frames.js";

const ACKNOWLEDGE = 3; // every so many frames
const HERE = 20_000; // ms

export class Line {
  // `hear` is called with each piece of news, `frame` with each frame that comes
  constructor(greeting, hear, frame) {
    Object.assign(this, { greeting, hear, frame, number: 0, tries: 0, latest: 0, acknowledged: 0 });
    setInterval(() => this.say("here"), HERE);
    this.open();
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/play`);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => {
      this.tries = this.latest = this.acknowledged = 0;
      this.say("set", { changes: this.greeting() });
    };
    this.socket.onmessage = ({ data }) => {
      if (typeof data === "string") this.hear(JSON.parse(data));
      else {
        const frame = unpack(data);
        this.latest = frame.frame;
        this.frame(frame);
      }
    };
    this.socket.onclose = ({ code }) => {
      if (code === 1013) return;
      this.hear({ lost: true });
      setTimeout(() => this.open(), Math.min(8000, 500 * 2 ** this.tries++));
    };
  }

  get ready() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  say(verb, more = {}) {
    if (!this.ready) return 0;
    this.number += 1;
    this.socket.send(JSON.stringify({ do: verb, id: this.number, ...more }));
    return this.number;
  }

  // Called once frames have been drawn: the server sends no more than a few ahead
  drawn() {
    if (this.latest - this.acknowledged < ACKNOWLEDGE) return;
    this.acknowledged = this.latest;
    this.say("seen", { frame: this.latest });
  }

  sendFile(file) {
    if (this.ready) this.socket.send(file);
  }
}
