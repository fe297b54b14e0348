// Draws the plots: the libraries are in the page, compressed; nothing is loaded.
(async () => {
  "use strict";
  const root = document.documentElement;
  // base 85 of Python, with "," for "<": five digits are four bytes, a shorter end is padded with the last digit
  const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
  const values = new Uint8Array(128);
  for (let k = 0; k < digits.length; k++) values[digits.charCodeAt(k)] = k;
  const decoded = (text) => {
    const groups = Math.ceil(text.length / 5), missing = 5 * groups - text.length;
    const padded = text + "~".repeat(missing);
    const view = new DataView(new ArrayBuffer(4 * groups));
    for (let g = 0; g < groups; g++) {
      let v = 0;
      for (let k = 5 * g; k < 5 * g + 5; k++) v = v * 85 + values[padded.charCodeAt(k)];
      view.setUint32(4 * g, v);
    }
    return new Uint8Array(view.buffer, 0, 4 * groups - missing);
  };
  const inflate = async (id) => {
    const bytes = decoded(document.getElementById(id).textContent);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  // objects that are there as columns
  const rows = (value) => {
    if (Array.isArray(value)) return value.map(rows);
    if (value === null || typeof value !== "object") return value;
    const each = (o) => Object.fromEntries(Object.entries(o).map(([key, v]) => [key, rows(v)]));
    if (!("%" in value)) return each(value);
    if (value["%"] === null) return each(value["="]);
    const columns = value["="].map(rows);
    return columns[0].map((_, k) => Object.fromEntries(value["%"].map((key, c) => [key, columns[c][k]])));
  };
  const content = async (id) => rows(JSON.parse(await inflate(id)));
  const text = (value) => JSON.stringify(value, null, 1) + "\n";
  for (const [id, name] of [["data", "mdh-lift-report.json"], ["t4", "mdh-lift-t4.json"]]) {
    const save = document.getElementById(`save-${id}`);
    if (!save) continue;
    save.hidden = false;
    save.addEventListener("click", async () => {
      const url = URL.createObjectURL(new Blob([text(await content(id))], { type: "application/json" }));
      const link = document.createElement("a");
      link.href = url;
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 1000);
    });
  }
  const nests = [...document.querySelectorAll("details.nest")];
  const known = content("data");
  const list = (pre, { text: whole, line }, lines) => {
    const shown = whole.split("\n").slice(0, lines);
    pre.querySelector("code").textContent = shown.join("\n");
    pre.querySelector(".lines").textContent = shown.map((_, n) => line + n).join("\n");
  };
  const bodies = document.getElementById("bodies") ? await content("bodies") : [];
  for (const [k, body] of bodies.entries()) {
    if (body === null) continue;
    const box = nests[k].querySelector(".packed");
    box.innerHTML = body; // markup of the program that made this page, escaped there
    box.classList.remove("packed");
    for (const pre of box.querySelectorAll("pre[data-of]")) list(pre, (await known).nests[k][pre.dataset.of], pre.dataset.lines);
  }
  const region = (box, name) => Object.assign(box, { tabIndex: 0, role: "region", ariaLabel: name });
  for (const nest of [document.body, ...nests]) {
    const of = nest.id ? ` of ${nest.id}` : "";
    const own = (what) => [...nest.querySelectorAll(what)].filter((e) => (e.closest("details.nest") ?? document.body) === nest);
    for (const box of own(".scroll")) region(box, box.querySelector("caption").textContent + of);
    for (const box of own(".expression")) region(box, `MDH expression${of}`);
    for (const box of own(".drawing")) region(box, `Drawing${of}`);
    for (const box of own("pre")) {
      const label = box.parentElement.querySelector(".label, summary");
      region(box, label && !nest.isSameNode(box.parentElement.parentElement) ? label.textContent + of : `Statements${of}`);
    }
  }
  for (const button of document.querySelectorAll(".rest button")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const k = nests.indexOf(button.closest("details.nest"));
      const { left_out: more, ...whole } = (await known).nests[k].result;
      list(button.closest("div").querySelector("pre"), whole);
      button.parentElement.querySelector("span").replaceChildren(more ? `${more} more lines: mdh-lift emit.` : "");
      button.remove();
    });
  }
  for (const box of document.querySelectorAll("pre.block")) {
    box.parentElement.addEventListener("toggle", async () => {
      const nest = box.closest("details.nest");
      const n = [...nest.querySelectorAll("pre.block")].indexOf(box);
      box.textContent = text((await known).nests[nests.indexOf(nest)].results[n].block);
    }, { once: true });
  }
  const open = () => {
    const nest = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (nest && nest.tagName === "DETAILS") nest.open = true;
  };
  addEventListener("hashchange", open);
  open();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.nest:not([open])")];
    for (const d of closed) d.open = true;
  });
  addEventListener("afterprint", () => { for (const d of closed) d.open = false; });

  const { templates, shared, plots } = await content("plots");
  if (!plots.length) { root.dataset.ready = "0"; return; }
  for (const id of ["vega.min", "vega-lite.min", "vega-interpreter"]) {
    const script = document.createElement("script");
    script.textContent = await inflate(id);
    document.head.append(script);
  }
  const never = () => Promise.reject(new Error("nothing is loaded"));
  const loader = { load: never, sanitize: never, http: never, file: never };
  const width = (id) => {
    const all = document.querySelector("main").clientWidth - 32;
    if (!document.getElementById(id).closest(".plots")) return all;
    const columns = Math.max(1, Math.min(2, Math.floor((all + 16) / 368)));
    return (all - 16 * (columns - 1)) / columns;
  };
  const views = new Map();
  const draw = async (plot) => {
    const spec = structuredClone(templates[plot.template]);
    const box = document.getElementById(plot.id);
    const data = [...(shared[plot.template] ?? []), ...(plot.rows ?? plots.find((p) => p.id === plot.same).rows)];
    const kinds = new Set(data.map((row) => row.kind));
    if (data.some((row) => row.kind === "trial")) kinds.add("best");
    spec.layer = spec.layer.filter((layer) => !layer.name || kinds.has(layer.name));
    Object.assign(spec, {
      width: width(plot.id), autosize: { type: "fit-x", contains: "padding" },
      height: spec.height * (plot.template === "speedup" ? data.length : 1),
      datasets: { rows: data }, description: plot.label,
    });
    box.replaceChildren();
    spec.config = { ...spec.config, legend: { ...spec.config.legend, columns: spec.width < 600 ? 1 : 3 } };
    const parsed = vega.parse(vegaLite.compile(spec).spec, {}, { ast: true });
    views.get(plot.id)?.finalize();
    const view = new vega.View(parsed, { loader, renderer: "svg", expr: vegaInterpreter });
    views.set(plot.id, view);
    await view.initialize(box).runAsync();
  };
  let run = 0;
  const all = async () => {
    const mine = ++run;
    let drawn = 0;
    for (const plot of plots) {
      if (mine !== run) return;
      await draw(plot);
      drawn += 1;
      if (drawn % 4 === 0) await new Promise((go) => setTimeout(go));
    }
    root.dataset.ready = String(drawn);
  };
  let before = innerWidth, waiting;
  addEventListener("resize", () => {
    if (innerWidth === before) return;
    before = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(all, 200);
  });
  await all();
})();
