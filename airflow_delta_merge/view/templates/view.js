// The theme that Airflow's UI is set to; without one, the system's.
(() => {
  const follow = () => {
    let theme = null;
    try { theme = localStorage.getItem("theme"); } catch { /* no access: the system's */ }
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  follow();
  addEventListener("storage", follow);
  // In Airflow's frame, links to Airflow's own pages open in Airflow, not in the frame.
  addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (link === null || parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const outer = parent.document.createElement("a");
    outer.href = link.href;
    parent.document.body.append(outer);
    outer.click();
    outer.remove();
  });
})();
