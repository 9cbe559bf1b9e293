// A thread of the runtime: the same code on the same memory, with a stack and a table of its own.
import { features, processors } from "./host.js";
import { sideModule } from "./side_modules.js";
import { serveMessages } from "./sources.js";

const unused = () => 0; // only the thread of the call asks the host for more
const ingot = {
  ...{ now: () => performance.now(), features, processors },
  ...{ open: unused, symbol: unused, close: unused, find: unused, write: unused, read: unused },
};

serveMessages(async ({ runtime, memory, stack, sides }, port) => {
  let exports;
  try {
    ({ exports } = await WebAssembly.instantiate(runtime, { env: { memory }, ingot }));
    exports.__stack_pointer.value = stack;
    const table = exports.__indirect_function_table;
    for (const { module, memoryBase, tableBase, tableLength } of sides) {
      table.grow(tableBase + tableLength - table.length);
      const stackPointer = exports.__stack_pointer;
      await sideModule(module, { memory, table, stackPointer, memoryBase, tableBase });
    }
    exports.ingot_wasm_offer();
  } catch (error) {
    port.postMessage(error.message);
    return;
  }
  port.postMessage(null);
  exports.ingot_wasm_run(); // until the worker is terminated
});
