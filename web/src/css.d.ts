// Vite takes style sheets that a module names.
declare module "*.css";
