// Draws the plots: the libraries are in the page, compressed; nothing is loaded.
(async () => {
  "use strict";
  const root = document.documentElement;
  const inflate = async (id) => {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const save = document.getElementById("save");
  save.hidden = false;
  save.addEventListener("click", async () => {
    const url = URL.createObjectURL(new Blob([await inflate("data")], { type: "application/json" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = "mdh-lift-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
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

  const { templates, shared, plots } = JSON.parse(await inflate("plots"));
  if (!plots.length) { root.dataset.ready = "0"; return; }
  for (const id of ["vega", "vega-lite", "vega-embed"]) {
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
  const draw = async (plot) => {
    const spec = structuredClone(templates[plot.template]);
    const box = document.getElementById(plot.id);
    const rows = [...(shared[plot.template] ?? []), ...plot.rows];
    const kinds = new Set(rows.map((row) => row.kind));
    if (rows.some((row) => row.best !== undefined)) kinds.add("best");
    spec.layer = spec.layer.filter((layer) => !layer.name || kinds.has(layer.name));
    Object.assign(spec, {
      width: width(plot.id), autosize: { type: "fit-x", contains: "padding" },
      height: spec.height * (plot.template === "speedup" ? rows.length : 1),
      datasets: { rows }, description: plot.label,
    });
    box.replaceChildren();
    spec.config = { ...spec.config, legend: { ...spec.config.legend, columns: spec.width < 600 ? 1 : 3 } };
    await vegaEmbed(box, spec, {
      actions: false, ast: true, renderer: "svg", loader, tooltip: false, defaultStyle: false, hover: false,
    });
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
