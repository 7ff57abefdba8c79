// Call sites: the stack of Python functions that this thread is in, as a site.
//
// A stack is known by its chain of (code object, instruction). One seen before costs a walk over the
// frames and a look into a table: no lock, no GIL, no string. A new one is put together from frames
// known to the SiteTable, under a lock; only when it has a code object in it that no stack had
// before is the GIL taken, to hold on to that object: as long as it is known here, nothing else can
// lie at its address. Lines are looked up by the drain.
#pragma once

#include <cstdint>

namespace gpumemtrace::hook {

class PythonStacks {
 public:
  // Never destroyed.
  static PythonStacks& instance();

  // A session begins to take stacks: forgets those of an earlier one. With the GIL. False: this Python
  // lays out its frames in a way that is not known here.
  bool start();
  // Lets go of the code objects. With the GIL.
  void stop();

  // The site of this thread's stack, in the module of `plain`, a site without a stack. 0: the thread
  // runs no Python code. Any thread, with the GIL or without.
  std::uint32_t site_now(std::uint32_t plain) noexcept;

  // Paths are cut to what doesn't tell where the program lies: behind site-packages, or the file's
  // name alone.
  void set_confidential(bool confidential) noexcept { confidential_ = confidential; }

 private:
  PythonStacks() = default;
  bool confidential_ = false;
};

}  // namespace gpumemtrace::hook
