// Trace files for Python: TraceFile and FileWriter. Whole columns cross; checks, defaults and error
// texts live in gpumemtrace/trace_file.py.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "ageing/ageing.h"
#include "python/bindings.h"
#include "trace/format_error.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace gpumemtrace::python {
namespace {

namespace py = pybind11;

[[noreturn]] void raise_os_error(int error_number, const std::string& path) {
  errno = error_number;
  PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
  throw py::error_already_set();
}

template <class Make>
auto with_os_errors(const std::string& path, Make make) {
  try {
    return make();
  } catch (const std::system_error& error) {
    raise_os_error(error.code().value(), path);
  }
}

const char* name_of(FormatErrorKind kind) {
  switch (kind) {
    case FormatErrorKind::kNotATrace:
      return "not_a_trace";
    case FormatErrorKind::kNewerVersion:
      return "newer_version";
    case FormatErrorKind::kCorrupt:
      return "corrupt";
  }
  return "corrupt";
}

py::list texts(const std::vector<std::string>& values) {
  py::list result;
  for (const std::string& value : values) result.append(py::bytes(value));
  return result;
}

class TraceFile {
 public:
  // `tail` stands in place of the file's bytes from `tail_offset` on, if there is one.
  TraceFile(const std::string& path, std::optional<std::uint64_t> tail_offset,
            const std::string& tail)
      : path_(path), reader_(with_os_errors(path, [&] {
          const py::gil_scoped_release release;
          std::unique_ptr<Source> source = std::make_unique<FileSource>(path);
          if (tail_offset) {
            source = std::make_unique<SourceWithTail>(
                std::move(source), *tail_offset,
                std::vector<std::uint8_t>(tail.begin(), tail.end()));
          }
          return std::make_unique<Reader>(std::move(source));
        })) {}

  const Reader& reader() const { return *reader_; }

  py::array_t<ChunkInfo> chunks() const {
    const auto& chunks = reader_->chunks();
    return py::array_t<ChunkInfo>(static_cast<py::ssize_t>(chunks.size()), chunks.data());
  }

  py::list problems() const {
    py::list result;
    for (const Problem& problem : reader_->problems()) {
      const bool known = problem.missing_count != Problem::kUnknownCount;
      result.append(
          py::make_tuple(gpumemtrace::name_of(problem.kind), problem.offset, problem.message,
                         problem.first_missing_sequence,
                         known ? py::object(py::int_(problem.missing_count)) : py::none()));
    }
    return result;
  }

  py::dict read(std::size_t first, std::size_t last) {
    const auto count = static_cast<py::ssize_t>(reader_->count(first, last));
    py::array_t<std::int64_t> time_ns(count);
    py::array_t<std::uint16_t> kind(count);
    py::array_t<std::uint64_t> address(count), size_bytes(count), stream(count), extra(count);
    py::array_t<std::uint32_t> thread(count), site(count), flags(count);
    py::array_t<std::int16_t> device(count);
    const EventColumns out{time_ns.mutable_data(),    kind.mutable_data(),   address.mutable_data(),
                           size_bytes.mutable_data(), stream.mutable_data(), extra.mutable_data(),
                           thread.mutable_data(),     site.mutable_data(),   flags.mutable_data(),
                           device.mutable_data()};
    const auto done = with_os_errors(path_, [&] {
      const py::gil_scoped_release release;
      return static_cast<py::ssize_t>(reader_->read(first, last, out));
    });
    py::dict columns;
    const auto put = [&](const char* name, py::array array) {
      columns[name] = done == count ? array : array[py::slice(0, done, 1)];
    };
    put("time_ns", time_ns);
    put("kind", kind);
    put("address", address);
    put("size_bytes", size_bytes);
    put("stream", stream);
    put("extra", extra);
    put("thread", thread);
    put("site", site);
    put("flags", flags);
    put("device", device);
    return columns;
  }

 private:
  std::string path_;
  std::unique_ptr<Reader> reader_;
};

// One column given by name: exactly this dtype, contiguous; a missing one is zeros.
template <class T>
class GivenColumn {
 public:
  GivenColumn(const py::dict& columns, const char* name, std::size_t count) {
    if (!columns.contains(name)) return;
    const py::object given = columns[name];
    if (!py::isinstance<py::array_t<T, py::array::c_style>>(given)) {
      throw py::type_error(std::string("column ") + name + " has the wrong dtype");
    }
    array_ = py::cast<py::array_t<T, py::array::c_style>>(given);
    if (array_.ndim() != 1 || static_cast<std::size_t>(array_.size()) != count) {
      throw py::value_error(std::string("column ") + name + " has the wrong length");
    }
    data_ = array_.data();
  }
  T operator[](std::size_t i) const noexcept { return data_ == nullptr ? T{} : data_[i]; }

 private:
  py::array_t<T, py::array::c_style> array_;
  const T* data_ = nullptr;
};

class FileWriter {
 public:
  FileWriter(const std::string& path, std::uint64_t time_resolution_ns, bool overwrite,
             std::uint16_t codec, std::uint64_t events_per_keyframe, std::uint64_t max_disk_bytes)
      : path_(path) {
    WriterOptions options{.time_resolution_ns = time_resolution_ns,
                          .codec = static_cast<Codec>(codec),
                          .events_per_keyframe = events_per_keyframe};
    if (max_disk_bytes != 0) options = ageing::Ageing::prepare(options, max_disk_bytes);
    writer_ = with_os_errors(path, [&] {
      return std::make_unique<Writer>(std::make_unique<FileSink>(path, overwrite), options);
    });
    if (max_disk_bytes == 0) return;
    ageing_ = with_os_errors(
        path, [&] { return std::make_unique<ageing::Ageing>(max_disk_bytes, *writer_); });
  }

  void append(const py::dict& columns) {
    const auto count = py::cast<py::array>(columns["kind"]).size();
    append_rows(columns, static_cast<std::size_t>(count));
  }
  void write_metadata(const std::string& json) {
    check(writer_->write_metadata(json.data(), json.size()));
  }
  void write_names(const std::string& json) {
    check(writer_->write_names(json.data(), json.size()));
  }
  void flush() {
    bool done = false;
    {
      const py::gil_scoped_release release;
      done = writer_->flush();
    }
    check(done);
  }
  void close(const std::string& footer_json) {
    bool done = false;
    {
      const py::gil_scoped_release release;
      done = writer_->close(footer_json.data(), footer_json.size());
    }
    check(done);
  }
  std::uint64_t bytes_written() const { return writer_->bytes_written(); }
  std::uint64_t rounds() const { return ageing_ == nullptr ? 0 : ageing_->rounds(); }

 private:
  void append_rows(const py::dict& columns, std::size_t count) {
    const GivenColumn<std::int64_t> time_ns(columns, "time_ns", count);
    const GivenColumn<std::uint16_t> kind(columns, "kind", count);
    const GivenColumn<std::uint64_t> address(columns, "address", count);
    const GivenColumn<std::uint64_t> size_bytes(columns, "size_bytes", count);
    const GivenColumn<std::uint64_t> stream(columns, "stream", count);
    const GivenColumn<std::uint64_t> extra(columns, "extra", count);
    const GivenColumn<std::uint32_t> thread(columns, "thread", count);
    const GivenColumn<std::uint32_t> site(columns, "site", count);
    const GivenColumn<std::uint32_t> flags(columns, "flags", count);
    const GivenColumn<std::int16_t> device(columns, "device", count);
    bool done = true;
    {
      const py::gil_scoped_release release;
      std::vector<Event> events(std::min<std::size_t>(count, 8192));
      for (std::size_t start = 0; done && start < count; start += events.size()) {
        const std::size_t rows = std::min(events.size(), count - start);
        for (std::size_t row = 0; row < rows; ++row) {
          const std::size_t i = start + row;
          events[row] = {static_cast<std::uint64_t>(time_ns[i]),
                         address[i],
                         size_bytes[i],
                         stream[i],
                         extra[i],
                         thread[i],
                         site[i],
                         flags[i],
                         device[i],
                         static_cast<Kind>(kind[i])};
        }
        done = writer_->append(events.data(), rows);
        if (ageing_ != nullptr && ageing_->work(*writer_)) ageing_->replace(writer_);
      }
    }
    check(done);
  }

  void check(bool done) const {
    if (done) return;
    if (ageing_ != nullptr && !ageing_->why().empty()) throw py::value_error(ageing_->why());
    if (writer_->error_number() != 0) raise_os_error(writer_->error_number(), path_);
    throw py::value_error(writer_->error());
  }

  std::string path_;
  std::unique_ptr<Writer> writer_;
  std::unique_ptr<ageing::Ageing> ageing_;  // none without a limit
};

}  // namespace

void register_trace(py::module_& module) {
  PYBIND11_NUMPY_DTYPE(ChunkInfo, offset, stored_bytes, first_sequence, count, first_time_ns,
                       last_time_ns, flags, codec, type);

  static py::exception<FormatError> format_error(module, "FormatError", PyExc_ValueError);
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const FormatError& error) {
      const py::tuple args = py::make_tuple(name_of(error.kind()), error.offset(), error.what());
      PyErr_SetObject(format_error.ptr(), args.ptr());
    }
  });

  py::class_<TraceFile>(module, "TraceFile")
      .def(py::init([](const std::string& path, std::optional<std::uint64_t> tail_offset,
                       const py::bytes& tail) {
             return std::make_unique<TraceFile>(path, tail_offset, std::string(tail));
           }),
           py::arg("path"), py::kw_only(), py::arg("tail_offset") = py::none(),
           py::arg("tail") = py::bytes())
      .def_property_readonly("chunks", &TraceFile::chunks)
      .def_property_readonly("metadata",
                             [](const TraceFile& file) { return texts(file.reader().metadata()); })
      .def_property_readonly("names",
                             [](const TraceFile& file) { return texts(file.reader().names()); })
      .def_property_readonly("footer",
                             [](const TraceFile& file) -> py::object {
                               const auto& footer = file.reader().footer();
                               return footer ? py::object(py::bytes(*footer)) : py::none();
                             })
      .def_property_readonly("problems", &TraceFile::problems)
      .def_property_readonly("format_version",
                             [](const TraceFile& file) {
                               return py::make_tuple(file.reader().version_major(),
                                                     file.reader().version_minor());
                             })
      .def_property_readonly("size_bytes",
                             [](const TraceFile& file) { return file.reader().size_bytes(); })
      .def("read", &TraceFile::read, py::arg("first"), py::arg("last"));

  py::class_<FileWriter>(module, "FileWriter")
      .def(py::init<const std::string&, std::uint64_t, bool, std::uint16_t, std::uint64_t,
                    std::uint64_t>(),
           py::arg("path"), py::arg("time_resolution_ns"), py::arg("overwrite"), py::arg("codec"),
           py::arg("events_per_keyframe"), py::arg("max_disk_bytes"))
      .def("append", &FileWriter::append, py::arg("columns"))
      .def("write_metadata", &FileWriter::write_metadata, py::arg("json"))
      .def("write_names", &FileWriter::write_names, py::arg("json"))
      .def("flush", &FileWriter::flush)
      .def("close", &FileWriter::close, py::arg("footer_json"))
      .def_property_readonly("bytes_written", &FileWriter::bytes_written)
      .def_property_readonly("rounds", &FileWriter::rounds);
}

}  // namespace gpumemtrace::python
