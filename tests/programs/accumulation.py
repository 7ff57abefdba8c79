from witness import Criterion, Model, NotedSGD, batch, note

model, criterion = Model().cuda(), Criterion()
optimizer = NotedSGD(model.parameters(), lr=0.1)
for i in range(12):
    loss = criterion(model(batch())) / 4
    loss.backward()
    if i % 4 == 3:
        note("clip")
        optimizer.step()
        optimizer.zero_grad()
