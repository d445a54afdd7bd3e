// Commands to the network, and the buttons for them.

const RATES = [0, 0.5, 1, 2, 5, 10, 25, 50]; // messages a second, by place of the slider
const BUTTONS = ["partition", "heal", "add_peer"];
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

// Give the network a command; says why if it does not take it.
const send = async (command, body) => {
  try {
    const answer = await fetch(`api/${command}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (!answer.ok) complain((await answer.json()).error);
  } catch {
    complain(`the network does not answer (${command})`);
  }
};

export class Controls {
  #state;
  #commands = new Set();
  #rate = document.getElementById("rate");
  #isSliding = false;

  // commands: those that the network takes.
  constructor(state, commands) {
    this.#state = state;
    for (const name of BUTTONS)
      document.getElementById(name).addEventListener("click", () => this.#command(name, {}));
    this.allow(commands);
    this.#rate.addEventListener("input", () => {
      this.#isSliding = true;
      this.#showRate(RATES[this.#rate.value]);
    });
    this.#rate.addEventListener("change", async () => {
      await this.#command("auto_append", { rate: RATES[this.#rate.value] });
      this.#isSliding = false;
    });
  }

  // Offer these commands alone.
  allow(commands) {
    this.#commands = new Set(commands);
    document.getElementById("controls").hidden = commands.length === 0;
    for (const name of BUTTONS) document.getElementById(name).hidden = !this.#commands.has(name);
  }

  append(peer) {
    this.#command("append", { peer });
  }

  toggle(peer) {
    this.#command(this.#state.peers.get(peer)?.running ? "stop" : "start", { peer });
  }

  cut(peer, other) {
    this.#command("cut", { peer, other });
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

  async #command(name, body) {
    if (this.#commands.has(name)) await send(name, body);
  }
}
