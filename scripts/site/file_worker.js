// A page that is opened from a folder may not start a Worker, so the theme's search gets a hidden
// frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const script = `<script>window.postMessage = data => parent.dispatchEvent(new MessageEvent("from-frame", { data }));<` +
        `/script><script src="${url}"><` + `/script>`;
      window.addEventListener("from-frame", event => {
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      });
      this.loaded = new Promise(done => { this.begun = done; });
      this.inside.document.open();
      this.inside.document.write(script);
      this.inside.document.close();
      frame.addEventListener("load", () => this.begun());
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
