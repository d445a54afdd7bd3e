// Commands to the network, and the buttons for them.

const RATES = [0, 0.5, 1, 2, 5, 10, 25, 50]; // messages a second, by place of the slider
// The buttons, by their commands, and what is said once one is obeyed.
const BUTTONS = { partition: "network parted", heal: "network healed", add_peer: "peer added" };
const NOTICE_MILLISECONDS = 6000;

const notice = document.getElementById("notice");
let hiding = null;

// Say that something did not work, for a while.
export const complain = (text) => {
  notice.textContent = text;
  notice.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => (notice.hidden = true), NOTICE_MILLISECONDS);
};

// Give the network a command; says why if it does not take it. Returns whether it did.
const send = async (command, body) => {
  try {
    const answer = await fetch(`api/${command}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (!answer.ok) complain((await answer.json()).error);
    return answer.ok;
  } catch {
    complain(`the network does not answer (${command})`);
    return false;
  }
};

export class Controls {
  #state;
  #commands = new Set();
  #rate = document.getElementById("rate");
  #isSliding = false;
  #speak;

  // commands: those that the network takes. speak(text): tells those who do not see it what has become of a command.
  constructor(state, commands, speak) {
    this.#state = state;
    this.#speak = speak;
    for (const [name, done] of Object.entries(BUTTONS))
      document.getElementById(name).addEventListener("click", () => this.#command(name, {}, done));
    this.allow(commands);
    this.#rate.addEventListener("input", () => {
      this.#isSliding = true;
      this.#showRate(RATES[this.#rate.value]);
    });
    this.#rate.addEventListener("change", async () => {
      const rate = RATES[this.#rate.value];
      await this.#command("auto_append", { rate }, `${rate > 0 ? rate : "no"} messages a second by themselves`);
      this.#isSliding = false;
    });
  }

  // Offer these commands alone.
  allow(commands) {
    this.#commands = new Set(commands);
    document.getElementById("controls").hidden = commands.length === 0;
    for (const name of Object.keys(BUTTONS)) document.getElementById(name).hidden = !this.#commands.has(name);
  }

  append(peer) {
    this.#command("append", { peer }, `message appended at ${this.#label(peer)}`);
  }

  toggle(peer) {
    const [name, done] = this.#state.peers.get(peer)?.running ? ["stop", "stopped"] : ["start", "started"];
    this.#command(name, { peer }, `${this.#label(peer)}: ${done}`);
  }

  cut(peer, other) {
    this.#command("cut", { peer, other }, `edge of ${this.#label(peer)} and ${this.#label(other)}: cut`);
  }

  // Show what the network says of itself.
  update() {
    document.getElementById("heal").classList.toggle("useful", this.#state.groups !== null);
    if (this.#isSliding) return;
    this.#rate.value = String(d3.minIndex(RATES, (rate) => Math.abs(rate - this.#state.rate)));
    this.#showRate(this.#state.rate);
  }

  #showRate(rate) {
    document.getElementById("rate-text").textContent = rate > 0 ? `${rate} / s` : "off";
  }

  #label(peer) {
    return this.#state.peers.get(peer)?.label ?? peer;
  }

  async #command(name, body, done) {
    if (!this.#commands.has(name)) return;
    // What is said twice in a row is announced once, unless it was taken back.
    this.#speak("");
    if (await send(name, body)) this.#speak(done);
  }
}
