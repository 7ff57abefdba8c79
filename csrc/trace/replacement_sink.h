// A file that is written beside another one and then takes its place.
#pragma once

#include <string>

#include "trace/guarded_descriptor.h"
#include "trace/sink.h"

namespace gpumemtrace {

// Until publish() the file has no name where the file system can do that, so that a process that is
// killed leaves nothing behind; elsewhere it is called ".<name>.ageing". One thread at a time.
class ReplacementSink final : public DescriptorSink {
 public:
  // For the file open as `descriptor`: made in the folder where that one lies now, with its
  // permissions. Throws std::system_error; ENOENT when it was deleted.
  explicit ReplacementSink(int descriptor);
  ~ReplacementSink() override;

  // Puts it in the place of the file, wherever that lies by now, in one step: whoever opens the name
  // sees the one or the other, whole. False (and error_number()) when that can't be done, or the name
  // is another file's by now: ENOENT.
  bool publish() noexcept;
  // Where publish() has put it. (The system tells no name of a file that was opened without one.)
  const std::string& path() const noexcept { return path_; }

 private:
  bool give_name();
  std::string original_path() const;

  int original_;           // the caller's, open until publish()
  std::string temporary_;  // beside the original
  std::string path_;
  bool has_name_ = false;
};

// Of a process that was killed where such a file has a name, and that is not there to use it any
// more. `path`: of the file that it was to replace.
void remove_unfinished_replacement(const std::string& path);

}  // namespace gpumemtrace
