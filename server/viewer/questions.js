// What a run asks, and the fields that answer it. They are no `form`: in a host's sandbox those send
// nothing.

const SETTLE_MS = 400;

/** The open questions of a run; each keeps its form, and what was typed, until it is answered. */
class Questions {
  /** `answer`: sends answers by question id; fails with a `Failure` if they were refused. */
  constructor(place, answer) {
    this.place = place;
    this.answer = async (answers) => {
      await answer(answers);
      const left = this.pending.filter(({ id }) => !Object.hasOwn(answers, String(id)));
      this.show(left, !this.more.hidden);
    };
    this.pending = [];
    this.cards = new Map();
    this.all = el("div", { class: "all", hidden: true });
    this.more = el(
      "p",
      { class: "quiet", hidden: true },
      "There are more questions than fit here; they appear once these are answered.",
    );
    place.append(this.all, this.more);
    // The second click of two was meant for what was there before.
    const hold = (event) => {
      const hasty = event.detail > 1 || this.settling;
      if (hasty && event.target.closest("button")) event.stopPropagation();
    };
    place.addEventListener("click", hold, true);
  }

  /** `cut`: whether there are more than these. */
  show(pending, cut = false) {
    this.pending = pending;
    const open = new Map(pending.map((one) => [String(one.id), one]));
    const gone = [...this.cards.keys()].filter((id) => !open.has(id));
    const fresh = [...open].filter(([id]) => !this.cards.has(id));
    let lost = false;
    for (const id of gone) {
      const card = this.cards.get(id);
      lost ||= card.contains(document.activeElement) || (card.held && isNowhere());
      card.remove();
      this.cards.delete(id);
    }
    for (const [id, question] of fresh) {
      const card = questionCard(question, (answer) => this.answer({ [id]: answer }));
      this.cards.set(id, card);
      this.place.insertBefore(card, this.more);
    }
    this.more.hidden = !cut;
    this.place.hidden = open.size === 0;
    if (lost) nextTo(this.place).focus();
    if (!gone.length && !fresh.length) return;
    this.offerAll([...open.values()].filter(canBeApproved));
    if (this.place.isConnected) this.settle();
  }

  /** Let nobody click what has just come under the pointer. */
  settle() {
    const mark = (on) => {
      for (const one of this.place.querySelectorAll("button"))
        if (on) one.setAttribute("aria-disabled", "true");
        else one.removeAttribute("aria-disabled");
    };
    clearTimeout(this.settling);
    mark(true);
    this.settling = setTimeout(() => {
      this.settling = 0;
      mark(false);
    }, SETTLE_MS);
  }

  /** Offer to approve several calls at once, after a second look. */
  offerAll(approvals) {
    this.all.hidden = approvals.length < 2;
    const count = approvals.length;
    const refused = el("p", { class: "refused", role: "alert", hidden: true });
    const row = el("div", { class: "row" });
    const send = async () => {
      const answers = approvals.map(({ id }) => [id, { decision: "approve" }]);
      this.place.inert = true;
      refused.hidden = true;
      try {
        await this.answer(Object.fromEntries(answers));
      } catch (failure) {
        say(refused, shown(failure.message, 2_000));
        refused.hidden = false;
      } finally {
        this.place.inert = false;
      }
    };
    const ask = () => {
      const back = button("Back", offer);
      const tools = [...new Set(approvals.map(({ tool }) => shown(tool, 100)))].join(", ");
      const approve = button(`Approve these ${count} calls`, send, "main");
      row.replaceChildren(approve, back, ` of ${tools}`);
      back.focus();
    };
    const offer = () => row.replaceChildren(button(`Approve all ${count}…`, ask));
    offer();
    this.all.replaceChildren(row, refused);
  }
}

function canBeApproved({ tool, args, decisions }) {
  return tool !== undefined && decisions?.includes("approve") && parsed(args) !== undefined;
}

const DECISIONS = {
  approve: { label: "Approve", style: "main" },
  edit: { label: "Edit…", send: "Approve with these arguments", field: "Arguments, as JSON" },
  reject: { label: "Reject…", send: "Reject", field: "Why (optional)" },
  respond: { label: "Respond…", send: "Respond", field: "Result of the call, instead of calling" },
};

function questionCard(question, answer) {
  const fields =
    "tool" in question
      ? (send) => approval(question, send)
      : (send) => form(question.answer_schema ?? {}, send);
  const refused = el("p", { class: "refused", role: "alert", hidden: true });
  const send = async (value) => {
    card.held = card.contains(document.activeElement); // until the fields are switched off
    const controls = [...card.querySelectorAll("button, textarea, input, select")];
    controls.forEach((one) => (one.disabled = true));
    refused.hidden = true;
    try {
      await answer(value);
    } catch (failure) {
      say(refused, shown(failure.message, 2_000));
      refused.hidden = false;
      controls.forEach((one) => (one.disabled = false));
    }
  };
  const card = el(
    "article",
    { class: "question", "data-id": shown(question.id), tabindex: "-1" },
    el("h3", {}, shown(question.question, 2_000)),
    el("p", { class: "quiet" }, `Asked by ${shown(question.asked_by, 500)}`),
    fields(send),
    refused,
  );
  return card;
}

/**
 * Return where the keyboard goes on once a question is gone: the next one, or the run's heading. Not
 * on a button, because a key that is held down would decide the next question too.
 */
function nextTo(place) {
  return place.querySelector(".question") ?? document.querySelector("h2") ?? document.body;
}

function isNowhere() {
  return document.activeElement === null || document.activeElement === document.body;
}

function approval(question, send) {
  const whole = parsed(question.args) !== undefined;
  const args = whole ? spread(question.args) : "";
  const decisions = (question.decisions ?? []).filter((one) => Object.hasOwn(DECISIONS, one));
  const forms = el("div");
  const choices = el(
    "div",
    { class: "row" },
    decisions.map((decision) => {
      const { label, style } = DECISIONS[decision];
      const act = () => {
        if (decision === "approve") send({ decision });
        else
          forms.replaceChildren(decisionForm(decision, args, send, () => forms.replaceChildren()));
        forms.querySelector("textarea")?.focus();
      };
      return button(label, act, style);
    }),
  );
  return [
    el("p", {}, "Call of ", el("code", {}, shown(question.tool, 200))),
    el(
      "pre",
      { tabindex: "0", role: "group", "aria-label": "Arguments" },
      whole ? args : shown(question.args),
    ),
    !whole &&
      el(
        "p",
        { class: "refused" },
        String(question.args).endsWith("…")
          ? "The arguments are too long to be shown whole: this is only their beginning."
          : "The arguments are not plain JSON: they are shown as they came.",
      ),
    choices,
    forms,
  ];
}

function decisionForm(decision, args, send, back) {
  const { send: label, field } = DECISIONS[decision];
  const input = el("textarea", { required: decision !== "reject", spellcheck: "false" });
  if (decision === "edit") input.value = args;
  const act = () => {
    if (decision !== "edit") {
      if (input.reportValidity()) send({ decision, ...(input.value && { message: input.value }) });
      return;
    }
    const edited = parsed(input.value);
    const good = edited !== null && typeof edited === "object" && !Array.isArray(edited);
    const endless = good && (input.value.match(TOKENS) ?? []).find(isEndless);
    if (!good) input.setCustomValidity("This is not a JSON object.");
    else if (endless) input.setCustomValidity(`${endless} is too large for a number.`);
    else input.setCustomValidity("");
    if (input.reportValidity()) send({ decision, args: new Json(input.value) });
  };
  input.addEventListener("input", () => input.setCustomValidity(""));
  return el(
    "div",
    {},
    el("label", {}, field, input),
    el("div", { class: "row" }, button(label, act, "main"), button("Back", back)),
  );
}

/** Make fields for any answer: plain fields where the schema has them, else text or JSON. */
function form(schema, send) {
  const properties = schema.type === "object" ? Object.entries(schema.properties ?? {}) : [];
  const isPlain = ([, one]) => Object.hasOwn(READERS, one?.type);
  const plain = properties.length > 0 && properties.every(isPlain);
  const fields = (plain ? properties : [["", schema]]).map(([name, one]) => {
    const input = inputFor(one);
    const required = !plain || (schema.required ?? []).includes(name);
    input.required = required && one.type !== "boolean";
    const title = shown(one.title ?? (name || "Your answer"), 200);
    const hint = one.description ? ` (${shown(one.description, 500)})` : "";
    const read = Object.hasOwn(READERS, one.type) ? READERS[one.type] : jsonIn;
    return { name, input, read, required, label: title + hint };
  });
  const act = () => {
    if (!fields.every((one) => one.input.reportValidity())) return;
    const values = fields
      .filter((one) => one.required || one.input.value !== "")
      .map((one) => [one.name, one.read(one.input)]);
    const bad = values.findIndex(([, value]) => value === undefined);
    if (bad >= 0) fields[bad].input.reportValidity();
    else send(plain ? Object.fromEntries(values) : values[0][1]);
  };
  const enter = (event) => {
    if (event.key === "Enter" && !event.repeat && event.target.matches("input")) act();
  };
  return el(
    "div",
    { on: { keydown: enter } },
    fields.map((one) => el("label", {}, one.label, one.input)),
    el("div", { class: "row" }, button("Answer", act, "main")),
  );
}

const READERS = {
  string: (input) => input.value,
  number: numberIn,
  integer: numberIn,
  boolean: (input) => input.checked,
};

function inputFor(schema) {
  if (schema.type === "string" && Array.isArray(schema.enum))
    return el(
      "select",
      {},
      schema.enum.map((one) => el("option", { value: String(one) }, shown(one, 200))),
    );
  if (schema.type === "boolean") return el("input", { type: "checkbox" });
  if (schema.type === "number" || schema.type === "integer")
    return el("input", { type: "number", step: schema.type === "integer" ? "1" : "any" });
  const input = el("textarea");
  input.addEventListener("input", () => input.setCustomValidity(""));
  return input;
}

function numberIn(input) {
  return parsed(input.value) === undefined ? Number(input.value) : new Json(input.value);
}

function jsonIn(input) {
  const good = parsed(input.value) !== undefined;
  input.setCustomValidity(good ? "" : "This is not JSON.");
  return good ? new Json(input.value) : undefined;
}
