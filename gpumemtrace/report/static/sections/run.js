renderers.run = (data, root) => {
  put(root, 
    makeTable(
      [
        { key: "name", title: "Name", text: true },
        { key: "text", title: "Value", text: true },
      ],
      data.rows.map(([name, text]) => ({ name, text })),
      { caption: "The run record", filter: "torch, allocator, …" },
    ),
  );
};
