declare module "*.css" {
  const text: string;
  export default text;
}

/** Built from js/lab/layout.worker.ts. */
declare module "layout-worker" {
  const source: string;
  export default source;
}
