
"use strict";

// What this page admits: a descriptor, its tools, and the bounds that a call must echo. Each tool
// takes the args and returns what it observed, or throws a Refused. `person` has no tool of its
// own: whoever sits here answers.
const EXTENSIONS = {
  notes: {
    bounds: { maxNotes: 100, maxLength: 1000 },
    tools: { read_notes: readNotes, write_note: writeNote },
    args: { read_notes: "{}", write_note: '{"text": "…"}' },
  },
  person: {
    bounds: {},
    tools: { ask: null },
    args: { ask: "any" },
  },
};
const CALL_MEMBERS = ["v", "callId", "tool", "descriptorId", "args", "boundsEcho"];
const MAX_ID = 256;
// Calls that wait for a person; calls that are over and still shown; characters shown of one.
const MAX_WAITING = 20;
const MAX_SHOWN = 50;
const MAX_TEXT = 4000;
const STORE = "triwire.notes";
// The longest pause before the next attempt to connect, in ms.
const MAX_PAUSE = 30000;

const at = (id) => document.getElementById(id);

class Refused extends Error {
  constructor(rule, why) {
    super(why);
    this.rule = rule;
  }
}

// ---- Notes

function notes() {
  const kept = JSON.parse(localStorage.getItem(STORE) ?? "[]");
  if (!Array.isArray(kept)) throw new Error("what is kept is no list of notes");
  return kept.filter((note) => typeof note === "string");
}

function keep(all) {
  localStorage.setItem(STORE, JSON.stringify(all));
  showNotes();
}

function readNotes() {
  return { notes: notes() };
}

function writeNote(args) {
  const { maxNotes, maxLength } = EXTENSIONS.notes.bounds;
  if (typeof args.text !== "string" || args.text === "") {
    throw new Refused("bad-arguments", 'expected {"text": "…"}, a text that is not empty');
  }
  if (args.text.length > maxLength) {
    throw new Refused("over-budget", `a note has at most ${maxLength} characters`);
  }
  const all = notes();
  if (all.length >= maxNotes) {
    throw new Refused("over-budget", `there are ${maxNotes} notes; remove some first`);
  }
  all.push(args.text);
  keep(all);
  return { count: all.length };
}

function showNotes() {
  let all = [];
  try {
    all = notes();
  } catch {
    // The tool says so to whoever calls it.
  }
  at("notes").replaceChildren(...all.map((text) => element("li", text)));
}

// ---- The envelope

// Names the top-level member within which one JSON object has a member twice: "" for the message
// itself, null for none. The text is JSON.
function repeatedIn(text) {
  const open = [];
  let last = "";
  let top = "";
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]:]/g)) {
    if (token === "{" || token === "[") {
      open.push(new Set());
    } else if (token === "}" || token === "]") {
      open.pop();
    } else if (token === ":") {
      const name = JSON.parse(last);
      const names = open.at(-1);
      if (names.has(name)) return open.length === 1 ? "" : top;
      names.add(name);
      if (open.length === 1) top = name;
    }
    last = token;
  }
  return null;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isName = (value) => typeof value === "string" && value !== "";

// A number by its exact value, not by the float next to it.
class Exact {
  constructor(source) {
    const parts = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(source);
    const [, sign, whole, fraction = "", exponent = "0"] = parts;
    const digits = (whole + fraction).replace(/^0+/, "");
    const significant = digits.replace(/0+$/, "");
    this.isReadable = exponent.replace(/^[+-]?0*/, "").length <= 9;
    const scale = Number(exponent) - fraction.length + digits.length - significant.length;
    this.text = significant === "" ? "0" : `${sign}${significant}e${scale}`;
  }
}

// Browsers that do not tell how a number was written compare floats.
const exactly = (text) => JSON.parse(text, (_, value, context) =>
  typeof value === "number" ? new Exact(context?.source ?? String(value)) : value);

function equal(one, other) {
  if (one instanceof Exact) {
    if (!(other instanceof Exact)) return false;
    if (!other.isReadable) throw new Refused("malformed-call", "an exponent is too long");
    return one.text === other.text;
  }
  if (Array.isArray(one)) {
    return Array.isArray(other) && one.length === other.length &&
      one.every((value, index) => equal(value, other[index]));
  }
  if (!isObject(one)) return one === other;
  const names = Object.keys(one);
  return isObject(other) && names.length === Object.keys(other).length &&
    names.every((name) => Object.hasOwn(other, name) && equal(one[name], other[name]));
}

// Judges a call, the first failure first.
function check(call, text) {
  const repeated = repeatedIn(text);
  if (Object.keys(call).some((name) => !CALL_MEMBERS.includes(name))) {
    throw new Refused("unknown-field", "the call has a member that the contract does not know");
  }
  if (repeated === "" || repeated === "args") {
    throw new Refused("malformed-call", "the call has a member twice");
  }
  if (call.v !== 1) throw new Refused("bad-version", "expected version 1");
  if (!isName(call.descriptorId) || !isName(call.tool) || !isObject(call.boundsEcho)) {
    throw new Refused("unattributed-call", "the call needs descriptorId, tool and boundsEcho");
  }
  if (Object.hasOwn(call, "args") && !isObject(call.args)) {
    throw new Refused("malformed-call", "args is no object");
  }
  const extension = Object.hasOwn(EXTENSIONS, call.descriptorId) && EXTENSIONS[call.descriptorId];
  if (!extension || !Object.hasOwn(extension.tools, call.tool)) {
    throw new Refused("unattributed-call", "this page admits no such descriptor and tool");
  }
  const bounds = exactly(JSON.stringify(extension.bounds));
  if (repeated === "boundsEcho" || !equal(bounds, exactly(text).boundsEcho)) {
    throw new Refused("bounds-mismatch", "the bounds are not those that this page admits");
  }
  return extension.tools[call.tool];
}

// ---- Calls

// Those that wait for a person, by their ids.
const waiting = new Map();

function received(link, text) {
  let call;
  try {
    call = JSON.parse(text);
  } catch {
    return;
  }
  if (!isObject(call)) return;
  if (call.type === "refused" && typeof call.why === "string") {
    link.toldWhy = call.why;
    return;
  }
  // What has no id cannot be answered.
  const { callId } = call;
  if (!isName(callId) || new TextEncoder().encode(callId).length > MAX_ID) return;

  const answer = (outcome) => {
    waiting.delete(callId);
    // Whoever asked over a connection that is gone has been told so.
    if (link.readyState === WebSocket.OPEN) {
      link.send(JSON.stringify({ v: 1, callId, ...outcome }));
    }
  };
  const refusal = ({ rule, message }) =>
    ({ ok: false, refused: rule ?? "exec-threw", why: message });
  const byItself = (tool) => {
    let outcome;
    try {
      outcome = { ok: true, observed: tool(call.args ?? {}) };
    } catch (error) {
      outcome = refusal(error);
    }
    answer(outcome);
    return outcome;
  };

  try {
    const tool = check(call, text);
    if (waiting.has(callId)) throw new Refused("duplicate-call", "this call is running");
    if (tool !== null && at("by-itself").checked) {
      show(call).over(byItself(tool));
      return;
    }
    if (waiting.size >= MAX_WAITING) {
      throw new Refused("too-many-calls", "as many calls wait here as there is room for");
    }
    const shown = show(call);
    waiting.set(callId, shown);
    shown.askPerson(tool, (outcome) => {
      answer(outcome);
      shown.over(outcome);
    }, () => shown.over(byItself(tool)));
  } catch (error) {
    const outcome = refusal(error);
    show(call).over(outcome);
    // A call of the same id that waits is not over with its double.
    const double = waiting.get(callId);
    answer(outcome);
    if (double) waiting.set(callId, double);
  }
}

// ---- What is shown: texts only, whatever a call holds

function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}

function button(text, press) {
  const made = element("button", text);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

function field(kind, text, value) {
  const label = element("label", text);
  const made = element(kind);
  if (kind === "input") made.type = "text";
  made.value = value;
  label.append(made);
  return { label, made };
}

function short(value) {
  const text = JSON.stringify(value, null, 2) ?? "";
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}… (${text.length} characters)` : text;
}

function show(call) {
  at("no-calls").hidden = true;
  const article = element("article");
  const state = element("p", "Waits for an answer.");
  const controls = element("div");
  const title = `${String(call.descriptorId)} · ${String(call.tool)}`;
  article.append(element("h3", title.slice(0, MAX_TEXT)), element("pre", short(call.args)));
  article.append(controls, state);
  at("calls").prepend(article);
  const over = [...at("calls").children].filter((own) => own.dataset.over);
  over.slice(MAX_SHOWN).forEach((own) => own.remove());
  return {
    askPerson(tool, settle, allow) {
      const fault = element("p");
      fault.setAttribute("role", "alert");
      const refusing = button("Refuse", () => settle({
        ok: false,
        refused: "refused-by-person",
        why: "whoever sits at the page refused",
      }));
      if (tool) {
        controls.append(button("Allow", allow), " ", refusing);
        return;
      }
      const { label, made } = field("textarea", "Answer, a JSON object", "{}");
      const send = () => {
        let observed;
        try {
          observed = JSON.parse(made.value);
        } catch (error) {
          fault.textContent = `This is no JSON: ${error.message}`;
          return;
        }
        if (isObject(observed)) settle({ ok: true, observed });
        else fault.textContent = 'Expected an object, as {"answer": "…"}.';
      };
      controls.append(label, button("Answer", send), " ", refusing, fault);
    },
    over(outcome) {
      article.dataset.over = "true";
      controls.replaceChildren();
      if (outcome.ok) {
        state.textContent = "Answered.";
        article.append(element("pre", short(outcome.observed)));
      } else {
        state.textContent = `Refused: ${outcome.refused}. ${outcome.why}`;
      }
    },
    lost() {
      article.dataset.over = "true";
      controls.replaceChildren();
      state.textContent = "The connection closed before an answer.";
    },
  };
}

// ---- The connection

let link = null;
let pause = 1000;
let again = 0;

function say(text) {
  at("status").textContent = text;
}

function connect() {
  clearTimeout(again);
  const own = new WebSocket(`ws://${location.host}/channel`);
  link = own;
  own.binaryType = "arraybuffer";
  at("chair").textContent = "Leave the chair";
  say("Connecting.");
  own.addEventListener("open", () => say("Connected: this page has the chair."));
  own.addEventListener("message", ({ data }) => {
    pause = 1000;
    if (typeof data === "string") received(own, data);
  });
  own.addEventListener("close", ({ code, reason }) => {
    waiting.forEach((shown) => shown.lost());
    waiting.clear();
    if (link !== own) return;
    // Told to go: two tabs that each came back would take turns for ever.
    if (code === 1008) {
      const why = own.toldWhy ? ` ${own.toldWhy}` : "";
      leave(`Told to leave: ${reason}.${why}`);
      return;
    }
    const wait = pause * (0.5 + Math.random() / 2);
    pause = Math.min(pause * 2, MAX_PAUSE);
    say("Not connected; tries again.");
    again = setTimeout(connect, wait);
  });
}

function leave(text) {
  clearTimeout(again);
  const own = link;
  link = null;
  own?.close();
  at("chair").textContent = "Take the chair";
  say(text);
}

for (const [descriptor, extension] of Object.entries(EXTENSIONS)) {
  for (const tool of Object.keys(extension.tools)) {
    const row = element("tr");
    const bounds = JSON.stringify(extension.bounds);
    for (const text of [descriptor, tool, extension.args[tool], bounds]) {
      const cell = element("td");
      cell.append(element("code", text));
      row.append(cell);
    }
    at("extensions").append(row);
  }
}
at("chair").addEventListener("click", () => (link ? leave("Left the chair.") : connect()));
at("chair").disabled = false;
at("add-note").addEventListener("click", () => {
  try {
    writeNote({ text: at("note").value });
    at("note").value = "";
  } catch (error) {
    at("note").setCustomValidity(error.message);
    at("note").reportValidity();
  }
});
at("note").addEventListener("input", () => at("note").setCustomValidity(""));
at("clear-notes").addEventListener("click", () => keep([]));
// Another tab of this page may write, too.
addEventListener("storage", showNotes);
showNotes();
connect();
