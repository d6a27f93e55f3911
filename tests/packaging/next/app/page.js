"use client";
import { useEffect } from "react";
import { start } from "../run.js";

export default function Page() {
  useEffect(start, []);
  return <p>page</p>;
}
