/** Python's exceptions. */
import { makeClass } from "./calls.js";
import { Tuple, setRaise, type Any } from "./values.js";
import { repr, str } from "./text.js";

export const BaseException: Any = makeClass("BaseException", null, null);
BaseException.prototype.$__init__ = function (...args: Any[]) {
  this.$args = new Tuple(args);
  this.made = new Error();
};
// Its text is costly to make, and most exceptions are caught.
Object.defineProperty(BaseException.prototype, "stack", {
  get() {
    return this.made?.stack;
  },
  set(text: string) {
    this.made = { stack: text };
  },
});
BaseException.prototype.$__str__ = function () {
  const { a } = this.$args;
  return a.length === 0 ? "" : a.length === 1 ? str(a[0]) : repr(this.$args);
};
BaseException.prototype.$__repr__ = function () {
  return `${this.constructor.typeName}(${this.$args.a.map(repr).join(", ")})`;
};
Object.defineProperty(BaseException.prototype, "message", {
  get() {
    return `${this.constructor.typeName}: ${this.$__str__()}`;
  },
});
BaseException.prototype.toString = function () {
  return this.message;
};

const kinds: Record<string, Any> = {};
const declare = (name: string, base: Any): Any => (kinds[name] = makeClass(name, base, null));
export const Exception = declare("Exception", BaseException);
export const ValueError = declare("ValueError", Exception);
export const TypeError_ = declare("TypeError", Exception);
export const LookupError = declare("LookupError", Exception);
export const KeyError = declare("KeyError", LookupError);
KeyError.prototype.$__str__ = function () {
  return repr(this.$args.a[0]);
};
export const IndexError = declare("IndexError", LookupError);
export const AttributeError = declare("AttributeError", Exception);
export const RuntimeError = declare("RuntimeError", Exception);
export const RecursionError = declare("RecursionError", RuntimeError);
export const NotImplementedError = declare("NotImplementedError", RuntimeError);
export const OSError = declare("OSError", Exception);
export const FileNotFoundError = declare("FileNotFoundError", OSError);
export const AssertionError = declare("AssertionError", Exception);
export const ArithmeticError = declare("ArithmeticError", Exception);
export const ZeroDivisionError = declare("ZeroDivisionError", ArithmeticError);
export const OverflowError = declare("OverflowError", ArithmeticError);
export const ImportError = declare("ImportError", Exception);
export const UnicodeError = declare("UnicodeError", ValueError);
export const UnicodeDecodeError = declare("UnicodeDecodeError", UnicodeError);
export const UnicodeEncodeError = declare("UnicodeEncodeError", UnicodeError);
export const BufferError_ = declare("BufferError", Exception);
export const MemoryError = declare("MemoryError", Exception);
export const StopIteration = declare("StopIteration", Exception);
export const RuntimeWarning = declare("RuntimeWarning", Exception);
export const UserWarning = declare("UserWarning", Exception);

/** What JavaScript itself threw: the run time, or a part of Python that it lacks. */
export const Foreign = declare("Foreign", BaseException);

setRaise((kind, message) => (kinds[kind] ?? Exception)(message));

/** What was caught, as an exception of Python. */
export function exception(e: Any): Any {
  if (e instanceof BaseException) return e;
  const made =
    e instanceof RangeError && /call stack|recursion/i.test(e.message)
      ? RecursionError("maximum recursion depth exceeded")
      : e instanceof RangeError && /allocation|memory|length/i.test(e.message)
        ? MemoryError(e.message)
        : Foreign(`${e?.name}: ${e?.message}`);
  made.stack = e?.stack;
  made.cause = e;
  return made;
}

/** What `raise X` throws. */
export function raised(x: Any): Any {
  return typeof x === "function" ? x() : x;
}
